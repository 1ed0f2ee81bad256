"""`Local`: threads of this process as executor."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

from gristmill.arguments import check_num_threads, usable_cores
from gristmill.corpus.threads import Crew
from gristmill.errors import OptionError
from gristmill.executors.calls import Call, Outcome, perform
from gristmill.executors.executor import Executor, Finished, Workers

# Time to wait for threads to end: a task checks between two steps whether to stop. A thread that takes longer, such as
# one that reads from a dead network connection, is a daemon and marks nothing as done (see `perform`).
PATIENCE_SECONDS = 30.0
PATIENCE_SECONDS_OF_CTRL_C = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Local(Executor):
    """Threads of this process; the default executor.

    With `work_folder` or `part_bytes`, the threads run tasks and leave their results in the work folder, so another
    process can take over. Otherwise there are no tasks and no intermediate files. `open()` starts the threads, and
    `with_threads(n)` sets their number.

    Examples:
        >>> import gristmill as gm
        >>> gm.Local(num_workers=4).num_workers
        4
        >>> gm.Local().runs_tasks, gm.Local(work_folder="work").runs_tasks
        (False, True)
    """

    name: ClassVar[str] = "local"
    """Name of the executor."""

    @property
    def runs_tasks(self) -> bool:
        """Whether work is split into tasks: only with `work_folder` or `part_bytes`."""
        return self.work_folder is not None or self.part_bytes is not None

    def with_threads(self, num_threads: Any) -> Local:
        """Return this executor with `num_threads` threads.

        Args:
            num_threads: The number of threads.

        Raises:
            OptionError: `num_workers` is another number.
        """
        number = check_num_threads(num_threads)
        if self.num_workers not in (None, number):
            raise OptionError(
                f"num_threads={number} contradicts num_workers={self.num_workers} of the executor. Pass one of them."
            )
        return replace(self, num_workers=number)

    @contextmanager
    def open(self) -> Iterator[Workers]:
        """Start the threads, and stop them when the block ends.

        Yields:
            The running workers.
        """
        workers = LocalWorkers(self.num_workers or usable_cores())
        patience = PATIENCE_SECONDS
        try:
            yield workers
        except KeyboardInterrupt:
            patience = PATIENCE_SECONDS_OF_CTRL_C
            raise
        finally:
            workers.close(patience)


class LocalWorkers(Workers):
    """Threads that perform calls."""

    copies_help = False  # if a call is slow for one thread, it is slow for all
    are_threads = True

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._finished: SimpleQueue[Finished] = SimpleQueue()
        self._cancelled: set[int] = set()
        self._next_ticket = 0
        self._is_closed = threading.Event()
        self._crew = Crew(self._perform, num_threads=num_workers, name="task")

    @property
    def num_workers(self) -> int:
        return self._num_workers

    def submit(self, call: Call) -> int:
        ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        self._crew.submit((ticket, call))
        return ticket

    def wait(self, seconds: float) -> list[Finished]:
        try:
            finished = [self._finished.get(timeout=seconds)]
            while not self._finished.empty():
                finished.append(self._finished.get_nowait())
        except Empty:
            return []
        return [one for one in finished if one.ticket not in self._cancelled]

    def cancel(self, ticket: int) -> None:
        self._cancelled.add(ticket)

    def close(self, patience: float = PATIENCE_SECONDS) -> None:
        """Stop the threads, each at the next step of its task, and wait at most `patience` seconds for them."""
        self._is_closed.set()
        self._crew.close(patience)

    def _perform(self, task: tuple[int, Call]) -> Outcome | None:
        ticket, call = task

        def check() -> None:
            if self._is_closed.is_set() or ticket in self._cancelled:
                raise InterruptedError(f"{call.name} was cancelled")

        try:
            outcome = perform(call, check, worker=threading.current_thread().name)
        except BaseException as error:
            self._finished.put(Finished(ticket, error=error))
            return None
        self._finished.put(Finished(ticket, outcome=outcome))
        return outcome
