"""Driver: runs the calls of each stage on the workers of an executor, with retries and copies of slow calls."""

from __future__ import annotations

import errno
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from gristmill.errors import GristmillError, InputChangedError, RemoteInputError, WorkerError
from gristmill.executors.calls import Call, Outcome
from gristmill.executors.executor import Finished, Workers
from gristmill.executors.watch import Watch
from gristmill.executors.work_folder import DamagedPartError, WorkFolder
from gristmill.trace import add_task

# Maximum wait, so that Ctrl-C and the progress bar do not have to wait for a task.
POLL_SECONDS = 0.2
# Submitted calls per worker: a worker that becomes free finds the next call waiting.
CALLS_PER_WORKER = 2
# Attempts before the task counts as the cause: one that needs too much memory kills every worker.
MAX_ATTEMPTS = 4
# A call is slow, and gets a second copy on an idle worker, when it takes this many times as long as the others, and at
# least this many seconds.
SLOW_FACTOR = 3.0
SLOW_SECONDS = 5.0
MAX_COPIES = 2

# Resources that one machine may lack and another have: disk space, memory, open files, a connection.
_OF_MACHINE = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EIO", "EROFS", "ENOMEM", "EMFILE", "ENFILE", "ESTALE")
    if hasattr(errno, name)
}

# Returns the calls of a stage, given the outcomes of the previous stage.
Stage: TypeAlias = Callable[[list[Outcome]], list[Call]]


def run_stages(workers: Workers, folder: WorkFolder, stages: Sequence[Stage], watch: Watch) -> list[list[Outcome]]:
    """Run all stages in order, and return the outcomes of each.

    If a stage finds a damaged file of an earlier stage, the task of that file runs again; all other tasks are reused.
    """
    times_damaged: Counter[str] = Counter()
    while True:
        outcomes: list[list[Outcome]] = []
        try:
            for stage in stages:
                outcomes.append(run_calls(workers, stage(outcomes[-1] if outcomes else []), watch))
            return outcomes
        except DamagedPartError as error:
            times_damaged[error.task] += 1
            if times_damaged[error.task] == MAX_ATTEMPTS:
                raise
            folder.discard(f"{error.task}.ok")
            watch.retried()


def run_calls(workers: Workers, calls: Sequence[Call], watch: Watch) -> list[Outcome]:
    """Run all calls, and return their outcomes in order.

    The first error of a task cancels the others. Of several errors at the same time, the one with the lowest number is
    raised.
    """
    run = _Run(workers, calls, watch)
    watch.begin(calls)
    try:
        while len(run.outcomes) < len(calls):
            run.submit()
            run.take(workers.wait(POLL_SECONDS))
            run.copy_slow_calls()
            watch.tick()
    finally:
        run.cancel()
    return [run.outcomes[index] for index in range(len(calls))]


@dataclass(slots=True)
class _Attempt:
    index: int  # of the call
    began: float | None = None  # time at which a worker was free for it

    def is_slow(self, expected_seconds: float) -> bool:
        """Whether it takes much longer than expected."""
        if self.began is None:
            return False
        return time.monotonic() - self.began > max(SLOW_SECONDS, SLOW_FACTOR * expected_seconds)


class _Run:
    """The calls of one stage: waiting, running (some twice) or done."""

    def __init__(self, workers: Workers, calls: Sequence[Call], watch: Watch) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._workers, self._calls, self._watch = workers, calls, watch
        self._waiting = deque(range(len(calls)))
        self._under_way: dict[int, _Attempt] = {}  # by ticket, in order of submission
        self._num_attempts = [0] * len(calls)
        self._seconds: list[float] = []  # of the calls that this run has done
        self._seconds_per_byte: list[float] = []

    def submit(self) -> None:
        """Submit waiting calls, up to `CALLS_PER_WORKER` per worker."""
        while self._waiting and len(self._under_way) < CALLS_PER_WORKER * max(1, self._workers.num_workers):
            self._submit(self._waiting.popleft())
        # Calls start in order of submission.
        for attempt in islice(self._under_way.values(), self._workers.num_workers):
            attempt.began = attempt.began or time.monotonic()

    def take(self, finished: Sequence[Finished]) -> None:
        """Record finished calls; raise the error of a failed one that cannot be retried."""
        errors: dict[int, BaseException] = {}
        for one in finished:
            attempt = self._under_way.pop(one.ticket, None)
            if attempt is None:
                continue  # the other copy of the call finished first, in this list
            if one.outcome is not None:
                self._put_away(attempt.index, one.outcome)
            elif _may_pass(one) and self._may_run_again(attempt.index):
                self._watch.retried()
            else:
                errors.setdefault(attempt.index, self._error(attempt.index, one))
        if errors:
            raise errors[min(errors)]

    def copy_slow_calls(self) -> None:
        """Submit copies of calls that take much longer than the others, if workers are idle."""
        if self._waiting or not self._seconds or not self._workers.copies_help:
            return
        # Also per byte: an input that cannot be cut makes a part that is larger than the others.
        usual, per_byte = statistics.median(self._seconds), statistics.median(self._seconds_per_byte)
        for attempt in list(self._under_way.values()):
            if len(self._under_way) >= self._workers.num_workers:
                return
            expected = max(usual, per_byte * self._calls[attempt.index].num_bytes)
            if attempt.is_slow(expected) and len(self._tickets(attempt.index)) < MAX_COPIES:
                self._submit(attempt.index)
                self._watch.copied()

    def cancel(self) -> None:
        """Cancel all running calls."""
        for ticket in self._under_way:
            self._workers.cancel(ticket)
        self._under_way.clear()

    def _submit(self, index: int) -> None:
        self._num_attempts[index] += 1
        self._under_way[self._workers.submit(self._calls[index])] = _Attempt(index)

    def _put_away(self, index: int, outcome: Outcome) -> None:
        self.outcomes[index] = outcome
        for ticket in self._tickets(index):
            self._workers.cancel(ticket)
            del self._under_way[ticket]
        if not outcome.is_reused:
            self._trace(outcome)
            self._seconds.append(outcome.seconds)
            self._seconds_per_byte.append(outcome.seconds / max(1, outcome.call.num_bytes))
        self._watch.done(outcome, self._num_attempts[index])

    def _trace(self, outcome: Outcome) -> None:
        """Add the call to the trace, unless a thread of this process did it and has added it."""
        if outcome.began is not None and not self._workers.are_threads:
            add_task(
                outcome.call.name,
                node=outcome.node,
                worker=outcome.worker,
                began=outcome.began,
                seconds=outcome.seconds,
                num_bytes=outcome.call.num_bytes,
            )

    def _may_run_again(self, index: int) -> bool:
        if self._tickets(index):
            return True  # its copy is running
        if self._num_attempts[index] >= MAX_ATTEMPTS:
            return False
        self._waiting.appendleft(index)
        return True

    def _error(self, index: int, finished: Finished) -> BaseException:
        if not finished.worker_died and finished.error is not None:
            return _located(finished.error, self._calls[index], finished.node)
        where = f" (the last one on {finished.node})" if finished.node else ""
        cause = finished.error or "the worker died."
        error = WorkerError(
            f"the task {self._calls[index].name} lost its worker {self._num_attempts[index]} times{where}: {cause}"
        )
        error.__cause__ = finished.error
        return error

    def _tickets(self, index: int) -> list[int]:
        return [ticket for ticket, attempt in self._under_way.items() if attempt.index == index]


def _may_pass(finished: Finished) -> bool:
    """Whether the call may succeed next time: its worker died, a storage failed, which may be temporary, or its machine
    lacks a resource that another one has.
    """
    error = finished.error
    if finished.worker_died or isinstance(error, GristmillError):
        return finished.worker_died or isinstance(error, RemoteInputError)
    is_of_machine = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _OF_MACHINE)
    return is_of_machine and bool(finished.node)  # a single machine will lack it next time too


def _located(error: BaseException, call: Call, node: str) -> BaseException:
    """Add the task to an error, and its machine if there may be several."""
    where = f"in the task {call.name}" + f" on the node {node}" * bool(node)
    if node and isinstance(error, OSError) and error.errno is not None and not isinstance(error, GristmillError):
        advice = ""
        if isinstance(error, FileNotFoundError):
            advice = ". All machines must be able to access the inputs and the work folder under the same names"
        elif error.filename is None:  # a temporary file
            advice = f". The task writes to {call.folder} and to the temporary folder of that machine"
        error = OSError(error.errno, f"{error.strerror} ({where}){advice}", error.filename)
    elif node and isinstance(error, InputChangedError):
        advice = "All machines must have the same file, with the same modification time."
        error.args = (f"{error} Detected on the node {node}. {advice}",)
    error.add_note(f"{where[0].upper()}{where[1:]}.")
    return error
