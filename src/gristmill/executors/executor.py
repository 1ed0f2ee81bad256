"""Executors: what runs calls. `Workers` are the open form: started, and to be closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from gristmill.errors import OptionError
from gristmill.executors.calls import Call, Outcome


@dataclass(frozen=True, slots=True)
class Finished:
    """A call that has ended: with an outcome, with an error of the task, or because its worker died."""

    ticket: int  # what `Workers.submit` gave
    outcome: Outcome | None = None
    error: BaseException | None = None
    worker_died: bool = False  # nothing is wrong with the task: it may run again elsewhere


class Workers(ABC):
    """Workers that are running. One thread at a time calls these methods."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor(ABC):
    """Who runs the tasks of a job, and where they leave their files.

    num_workers: how many tasks run at the same time; default: what the machine, or the cluster, has.
    work_folder: a folder or URL that all workers see. Default: beside the output.
    part_bytes: about how much of the inputs is one task. Default: by the size of the corpus, at most 256 MB.
    """

    name: ClassVar[str]
    num_workers: int | None = None
    work_folder: str | None = None
    part_bytes: int | None = None

    @abstractmethod
    def open(self) -> AbstractContextManager[Workers]:
        """Start the workers; they end with the block."""


def check_executor(executor: Any) -> Executor:
    """The executor that an argument means: one of its class, or the name of one."""
    from gristmill.executors.local import Local

    known = {"local": Local}
    if isinstance(executor, Executor):
        return executor
    if isinstance(executor, str) and executor in known:
        return known[executor]()
    raise OptionError(f"executor={executor!r} is not known. Pass one of {', '.join(known)}, or gm.Local(…).")
