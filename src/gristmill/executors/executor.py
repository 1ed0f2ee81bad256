"""Executors: what runs calls. `Workers` are the open form: started, and to be closed."""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from gristmill.arguments import MAX_NATIVE, check_choice, check_whole_number
from gristmill.corpus.inputs import is_url
from gristmill.errors import OptionError
from gristmill.executors.calls import Call, Outcome

# By name. An executor is one module and one line here; the module is imported when the executor is asked for.
EXECUTORS = {
    "local": "gristmill.executors.local:Local",
    "processes": "gristmill.executors.processes:Processes",
    "ray": "gristmill.executors.ray_cluster:Ray",
}
MAX_WORKERS = 100_000


@dataclass(frozen=True, slots=True)
class Finished:
    """A call that has ended: with an outcome, with an error of the task, or because its worker died."""

    ticket: int  # what `Workers.submit` gave
    outcome: Outcome | None = None
    error: BaseException | None = None
    worker_died: bool = False  # nothing is wrong with the task: it may run again elsewhere
    node: str = ""  # the machine of a worker that failed or died, where it is known and there may be others


class Workers(ABC):
    """Workers that are running. One thread at a time calls these methods."""

    # Whether a second copy of a slow call may end sooner than the first.
    copies_help: ClassVar[bool] = True

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """How many calls can run at the same time, now."""

    @abstractmethod
    def submit(self, call: Call) -> int:
        """Have a call run as soon as a worker is free; the ticket by which `wait` names it."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Finished]:
        """The calls that have ended since, as soon as there is one, or none after so many seconds."""

    @abstractmethod
    def cancel(self, ticket: int) -> None:
        """Nobody wants the outcome of this call any more; `wait` never names it again."""

    def check_on_this_machine(self) -> None:  # noqa: B027  most are
        """Raise OptionError if workers are on other machines, which see no temporary folder of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor(ABC):
    """Who runs the tasks of a job, and where they leave their files.

    num_workers: how many tasks run at the same time; default: what the machine, or the cluster, has.
    work_folder: a folder or URL that all workers see. Default: beside the output.
    part_bytes: about how much of the inputs is one task. Default: by the size of the corpus, at most 256 MB.
    """

    name: ClassVar[str]
    num_workers: int | None = None
    work_folder: str | os.PathLike[str] | None = None
    part_bytes: int | None = None

    # A subclass with checks of its own calls `Executor.__post_init__(self)` first: slots break `super()`.
    def __post_init__(self) -> None:
        if self.num_workers is not None:
            _set(self, "num_workers", _check_num_workers(self.num_workers))
        if self.work_folder is not None:
            _set(self, "work_folder", _check_work_folder(self.work_folder))
        if self.part_bytes is not None:
            _set(self, "part_bytes", _check_part_bytes(self.part_bytes))

    @property
    def runs_tasks(self) -> bool:
        """Whether work is cut into tasks. Otherwise threads of this process do it all, without files in between."""
        return True

    def with_threads(self, num_threads: Any) -> Executor:
        """This executor with so many threads, as an argument of `encode_corpus` and others asks for."""
        raise OptionError(
            f"num_threads={num_threads!r} does not apply to executor={self.name!r}: each worker uses one thread. Pass "
            f"num_workers= to the executor instead."
        )

    @abstractmethod
    def open(self) -> AbstractContextManager[Workers]:
        """Start the workers; they end with the block."""


def check_executor(executor: Any, num_threads: Any = None) -> Executor:
    """The executor that an argument means: one of its class, or the name of one.

    num_threads: another argument of the same function, how many threads are to work; only `Local` has threads.

    >>> check_executor("local")
    Local(num_workers=None, work_folder=None, part_bytes=None)
    >>> check_executor("procesess")
    Traceback (most recent call last):
    gristmill.errors.OptionError: executor='procesess' is not known. Did you mean 'processes'? Pass one of 'local', \
'processes', 'ray'.
    """
    chosen = executor if isinstance(executor, Executor) else _named(executor)
    return chosen if num_threads is None else chosen.with_threads(num_threads)


def _named(executor: Any) -> Executor:
    if isinstance(executor, type) and issubclass(executor, Executor):
        raise OptionError(f"executor={executor.__name__} is a class. Pass one of its objects: {executor.__name__}().")
    return executor_class(executor)()


def is_shared(location: str | os.PathLike[str]) -> bool:
    """Whether other processes can see what is at `location`.

    >>> is_shared("s3://bucket/work"), is_shared("memory://work")
    (True, False)
    """
    return not os.fspath(location).startswith("memory://")


def check_shared(location: str | os.PathLike[str] | None) -> None:
    """Raise if other processes cannot see what is at `location`, a work folder."""
    if location is not None and not is_shared(location):
        raise OptionError(
            f"{location} is in the memory of this process, where no worker of another process sees it. Pass a "
            f"work_folder that all of them see: a folder of a shared file system, or a URL such as s3://bucket/work."
        )


def executor_class(name: Any) -> type[Executor]:
    """The class of executors with this name."""
    module, _, attribute = EXECUTORS[check_choice("executor", name, EXECUTORS)].partition(":")
    found: type[Executor] = getattr(importlib.import_module(module), attribute)
    return found


def _set(executor: Executor, name: str, value: object) -> None:
    object.__setattr__(executor, name, value)  # frozen


def _check_num_workers(num_workers: Any) -> int:
    number = check_whole_number("num_workers", num_workers)
    if not 1 <= number <= MAX_WORKERS:
        raise OptionError(
            f"num_workers={number} is too {'small' if number < 1 else 'large'}. Pass 1 to {MAX_WORKERS:,}, or leave it "
            f"out to use every core."
        )
    return number


def _check_part_bytes(part_bytes: Any) -> int:
    number = check_whole_number("part_bytes", part_bytes)
    if number < 1:
        raise OptionError(
            f"part_bytes={number} is too small. Pass part_bytes >= 1, such as 64_000_000, or leave it out: then it "
            f"follows the size of the corpus."
        )
    return min(number, MAX_NATIVE)


def _check_work_folder(work_folder: Any) -> str:
    if not isinstance(work_folder, str | os.PathLike):
        raise OptionError(f"work_folder={work_folder!r} is a {type(work_folder).__name__}. Pass a path or a URL.")
    location = os.fspath(work_folder)
    # "s3://" and "s3://my bucket" would be the path of a folder "s3:" on this machine.
    is_half_url = isinstance(location, str) and "://" in location and not is_url(location.rstrip("/"))
    if not isinstance(location, str) or not location or is_half_url:
        raise OptionError(
            f"work_folder={work_folder!r} names no folder. Pass a path, or a URL without spaces such as "
            f"'s3://bucket/work'."
        )
    if "\0" in location or not _can_be_encoded(location):
        raise OptionError(f"work_folder={work_folder!r} has a character that no file name can have. Pass another name.")
    return location


def _can_be_encoded(location: str) -> bool:
    try:
        os.fsencode(location)
    except UnicodeEncodeError:
        return False
    return True
