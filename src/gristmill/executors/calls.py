"""Calls: tasks by name, so that only names are sent to the workers, and their outcomes."""

from __future__ import annotations

import importlib
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from gristmill.executors.done import Done, read_done, write_done
from gristmill.executors.work_folder import WorkFolder, open_work_folder
from gristmill.profile import peak_memory_bytes
from gristmill.trace import span

# Called between two steps of a task; an exception ends the task.
Check: TypeAlias = Callable[[], None]
# A task: (work folder, number, check) -> result. The same arguments give the same result, wherever and however often.
TaskFunction: TypeAlias = Callable[[WorkFolder, int, Check], Done]


@dataclass(frozen=True, slots=True)
class Call:
    """One task of a job."""

    stage: str  # "count", "merge", "encode" or "assemble"
    function: str  # "module:function", below the package gristmill
    folder: str  # the location of the work folder
    number: int
    num_bytes: int = 0  # approximate amount of work, for progress bars and rates

    @property
    def name(self) -> str:
        """Name of the task, with which the names of its files begin.

        >>> Call("encode", "gristmill.shards.tasks:encode_part", "work", 7).name
        'encode-00007'
        """
        return f"{self.stage}-{self.number:05d}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call that succeeded."""

    call: Call
    done: Done
    node: str  # the machine
    worker: str  # the process or thread on it
    seconds: float
    is_reused: bool  # an earlier run had done it
    peak_memory_bytes: int | None = None  # of the process
    began: float | None = None  # seconds since 1970, by the clock of the machine


def perform(call: Call, check: Check, *, worker: str | None = None) -> Outcome:
    """Run a task in this process, unless its result exists.

    worker: name of the worker on this machine. Default: the id of this process.
    """
    began, wall_began = time.perf_counter(), time.time()
    with span(call.name, bytes=call.num_bytes):
        done, is_reused = _done(call, check)
    seconds = time.perf_counter() - began
    node, worker = platform.node(), worker or str(os.getpid())
    return Outcome(call, done, node, worker, seconds, is_reused, peak_memory_bytes(), wall_began)


def _done(call: Call, check: Check) -> tuple[Done, bool]:
    """Return the result of a task, and whether it existed before."""
    folder = open_work_folder(call.folder)
    done = read_done(folder, call.name)
    is_reused = done is not None
    if done is None:
        check()
        done = _function(call.function)(folder, call.number, check)
        check()
        write_done(folder, call.name, done)
        # As a later run would read it: JSON turns tuples into lists and keys into strings.
        done = replace(done, result=json.loads(json.dumps(done.result)))
    return done, is_reused


def _function(name: str) -> TaskFunction:
    module, _, attribute = name.partition(":")
    assert module.startswith("gristmill"), name
    function: Any = getattr(importlib.import_module(module), attribute)
    return function  # type: ignore[no-any-return]
