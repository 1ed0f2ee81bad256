"""Calls: tasks by name, so that only names travel to the workers, and what comes back."""

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

# Called between two steps of a task; what it raises ends the task.
Check: TypeAlias = Callable[[], None]
# A task: (work folder, number, check) -> what it has made. The same for the same arguments, wherever and however often.
TaskFunction: TypeAlias = Callable[[WorkFolder, int, Check], Done]


@dataclass(frozen=True, slots=True)
class Call:
    """One task of a job."""

    stage: str  # "count", "merge", "encode" or "assemble"
    function: str  # "module:function", below the package gristmill
    folder: str  # the location of the work folder
    number: int
    num_bytes: int = 0  # how much work it is, about: for bars and rates

    @property
    def name(self) -> str:
        """What its files are called.

        >>> Call("encode", "gristmill.shards.tasks:encode_part", "work", 7).name
        'encode-00007'
        """
        return f"{self.stage}-{self.number:05d}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call that did not fail."""

    call: Call
    done: Done
    node: str  # the machine
    worker: str  # the process or thread on it
    seconds: float
    is_reused: bool  # its files were there already
    peak_memory_bytes: int | None = None  # of the process


def perform(call: Call, check: Check, *, worker: str | None = None) -> Outcome:
    """Run a task here and now, unless what it makes is there already.

    worker: who runs it on this machine; default: the id of this process.
    """
    began = time.perf_counter()
    folder = open_work_folder(call.folder)
    done = read_done(folder, call.name)
    is_reused = done is not None
    if done is None:
        check()
        done = _function(call.function)(folder, call.number, check)
        check()
        write_done(folder, call.name, done)
        # As a run that reuses it reads it: a tuple is a list there, and every key a str.
        done = replace(done, result=json.loads(json.dumps(done.result)))
    seconds = time.perf_counter() - began
    node, worker = platform.node(), worker or str(os.getpid())
    return Outcome(call, done, node, worker, seconds, is_reused, peak_memory_bytes())


def _function(name: str) -> TaskFunction:
    module, _, attribute = name.partition(":")
    assert module.startswith("gristmill"), name
    function: Any = getattr(importlib.import_module(module), attribute)
    return function  # type: ignore[no-any-return]
