"""Executors run calls. `Workers` is the running form of an executor: started, and to be closed."""

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

# Executors by name, each in its own module, which is imported on first use.
EXECUTORS = {
    "local": "gristmill.executors.local:Local",
    "processes": "gristmill.executors.processes:Processes",
    "ray": "gristmill.executors.ray_cluster:Ray",
}
MAX_WORKERS = 100_000


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished call: with an outcome, with an error of the task, or because its worker died."""

    ticket: int  # the result of `Workers.submit`
    outcome: Outcome | None = None
    error: BaseException | None = None
    worker_died: bool = False  # not an error of the task, which may run again elsewhere
    node: str = ""  # the worker's machine, if known and there may be several


class Workers(ABC):
    """Running workers. Only one thread at a time may call these methods."""

    # Whether a second copy of a slow call may finish before the first.
    copies_help: ClassVar[bool] = True
    # Whether they are threads of this process.
    are_threads: ClassVar[bool] = False

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """Number of calls that can run at the same time, now."""

    @abstractmethod
    def submit(self, call: Call) -> int:
        """Run a call as soon as a worker is free; return a ticket, which `wait` reports."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Finished]:
        """Return the calls that have finished; wait up to `seconds` for the first one."""

    @abstractmethod
    def cancel(self, ticket: int) -> None:
        """Drop the outcome of a call; `wait` never reports it."""

    def check_on_this_machine(self) -> None:  # noqa: B027  most executors run there
        """Raise OptionError if workers are on other machines, which cannot access a temporary folder of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor(ABC):
    """Base class of executors, which run the tasks of a job on threads, processes or machines.

    `Local` runs threads, `Processes` child processes and `Ray` the workers of a cluster. Pass one to `encode_corpus` or
    `count_words`.

    Raises:
        OptionError: A field is out of range.

    Examples:
        >>> import gristmill as gm
        >>> gm.Processes(num_workers=8, part_bytes=64_000_000)
        Processes(num_workers=8, work_folder=None, part_bytes=64000000)
        >>> isinstance(gm.Local(), gm.Executor)
        True
    """

    name: ClassVar[str]
    """Name of the executor, such as "processes"."""
    num_workers: int | None = None
    """Number of tasks that run at the same time. Default: all cores of the machine or CPUs of the cluster."""
    work_folder: str | os.PathLike[str] | None = None
    """A folder or URL that all workers can access. Default: `.parts` in the output of `encode_corpus`, and a temporary
    folder for `count_words` and `train_tokenizer`."""
    part_bytes: int | None = None
    """Approximate size of the input of one task. Default: depends on the size of the corpus, at most 256 MiB."""

    # A subclass that adds checks calls `Executor.__post_init__(self)` first: slots break `super()`.
    def __post_init__(self) -> None:
        if self.num_workers is not None:
            _set(self, "num_workers", _check_num_workers(self.num_workers))
        if self.work_folder is not None:
            _set(self, "work_folder", _check_work_folder(self.work_folder))
        if self.part_bytes is not None:
            _set(self, "part_bytes", _check_part_bytes(self.part_bytes))

    @property
    def runs_tasks(self) -> bool:
        """Whether work is split into tasks. Otherwise threads of this process do it, without intermediate files."""
        return True

    def with_threads(self, num_threads: Any) -> Executor:
        """Return this executor with `num_threads` threads; only `Local` has threads.

        Args:
            num_threads: The argument `num_threads` of `encode_corpus` or `count_words`.

        Raises:
            OptionError: This executor is not `Local`, or `num_threads` contradicts `num_workers`.

        Examples:
            >>> from gristmill import Local
            >>> Local().with_threads(2).num_workers
            2
        """
        raise OptionError(
            f"num_threads={num_threads!r} does not apply to executor={self.name!r}: each worker uses one thread. Pass "
            f"num_workers= to the executor instead."
        )

    @abstractmethod
    def open(self) -> AbstractContextManager[Workers]:
        """Start the workers, and stop them when the block ends.

        Returns:
            A context manager that yields the `Workers`.

        Examples:
            ```python
            with executor.open() as workers:
                workers.submit(call)
            ```
        """


def check_executor(executor: Any, num_threads: Any = None) -> Executor:
    """Return the executor that an argument names: an `Executor`, or the name of one.

    num_threads: the argument `num_threads` of the same function; only `Local` has threads.

    >>> check_executor("local")
    Local(num_workers=None, work_folder=None, part_bytes=None)
    >>> check_executor("procesess")
    Traceback (most recent call last):
    gristmill.errors.OptionError: executor='procesess' is not valid. Did you mean 'processes'? Pass one of 'local', \
'processes', 'ray'.
    """
    chosen = executor if isinstance(executor, Executor) else _named(executor)
    return chosen if num_threads is None else chosen.with_threads(num_threads)


def _named(executor: Any) -> Executor:
    if isinstance(executor, type) and issubclass(executor, Executor):
        raise OptionError(f"executor={executor.__name__} is a class. Pass one of its objects: {executor.__name__}().")
    return executor_class(executor)()


def is_shared(location: str | os.PathLike[str]) -> bool:
    """Whether other processes can access `location`.

    >>> is_shared("s3://bucket/work"), is_shared("memory://work")
    (True, False)
    """
    return not os.fspath(location).startswith("memory://")


def check_shared(location: str | os.PathLike[str] | None) -> None:
    """Raise if other processes cannot access `location`, a work folder."""
    if location is not None and not is_shared(location):
        raise OptionError(
            f"{location} is in the memory of this process, which workers cannot access. Pass a work_folder that all of "
            f"them can access: a folder of a shared file system, or a URL such as s3://bucket/work."
        )


def executor_class(name: Any) -> type[Executor]:
    """Return the executor class with this name."""
    module, _, attribute = EXECUTORS[check_choice("executor", name, EXECUTORS)].partition(":")
    found: type[Executor] = getattr(importlib.import_module(module), attribute)
    return found


def _set(executor: Executor, name: str, value: object) -> None:
    object.__setattr__(executor, name, value)  # frozen


def _check_num_workers(num_workers: Any) -> int:
    number = check_whole_number("num_workers", num_workers)
    if not 1 <= number <= MAX_WORKERS:
        raise OptionError(f"num_workers must be 1 to {MAX_WORKERS:,}, got {number}. Leave it out to use every core.")
    return number


def _check_part_bytes(part_bytes: Any) -> int:
    number = check_whole_number("part_bytes", part_bytes)
    if number < 1:
        raise OptionError(
            f"part_bytes must be >= 1, got {number}. Pass a size such as 64_000_000, or leave it out to choose it by "
            f"the size of the corpus."
        )
    return min(number, MAX_NATIVE)


def _check_work_folder(work_folder: Any) -> str:
    if not isinstance(work_folder, str | os.PathLike):
        raise OptionError(f"work_folder={work_folder!r} is of type {type(work_folder).__name__}. Pass a path or a URL.")
    location = os.fspath(work_folder)
    # Otherwise "s3://" and "s3://my bucket" would be paths in a local folder "s3:".
    is_half_url = isinstance(location, str) and "://" in location and not is_url(location.rstrip("/"))
    if not isinstance(location, str) or not location or is_half_url:
        raise OptionError(
            f"work_folder={work_folder!r} is not a folder name. Pass a path, or a URL without spaces such as "
            f"'s3://bucket/work'."
        )
    if "\0" in location or not _can_be_encoded(location):
        raise OptionError(
            f"work_folder={work_folder!r} has a character that file names cannot have. Pass another name."
        )
    return location


def _can_be_encoded(location: str) -> bool:
    try:
        os.fsencode(location)
    except UnicodeEncodeError:
        return False
    return True
