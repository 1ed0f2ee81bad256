"""`Processes`: child processes as executor."""

from __future__ import annotations

import os
import platform
import selectors
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill.arguments import usable_cores
from gristmill.errors import WorkerError
from gristmill.executors.calls import Call
from gristmill.executors.executor import Executor, Finished, Workers, check_shared
from gristmill.executors.process_worker import unpack_outcome
from gristmill.pretokenize import pieces
from gristmill.pretokenize.worker import unpack_error
from gristmill.pretokenize.worker_pool import await_ready, receive_from, send_to, start_process
from gristmill.progress import running_workers

if TYPE_CHECKING:
    import subprocess

# One thread per worker: otherwise each of N workers on N cores would start N threads.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

REMEDY = "pass a smaller num_workers or part_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes(Executor):
    """Child processes, each with one thread; by default one per usable core.

    The processes do not import the script that started them, so it needs no `if __name__ == "__main__"`. A process that
    dies is replaced, and its task runs again. `open()` starts the processes.

    Examples:
        ```python
        gm.encode_corpus("corpus/", "tokenizer.json", out="shards", executor=gm.Processes(num_workers=8))
        ```
    """

    name: ClassVar[str] = "processes"
    """Name of the executor."""

    def __post_init__(self) -> None:
        Executor.__post_init__(self)
        check_shared(self.work_folder)

    @contextmanager
    def open(self) -> Iterator[Workers]:
        """Start the processes, and stop them when the block ends.

        Yields:
            The running workers.
        """
        workers = ProcessWorkers(self.num_workers or usable_cores())
        try:
            yield workers
        finally:
            workers.close()


@dataclass(eq=False, slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    ticket: int | None = None  # of the call that it runs
    is_ready: bool = False


class ProcessWorkers(Workers):
    """Processes that run calls, started on demand.

    Everything happens on the caller's thread: a process runs one call at a time, and waiting for outcomes means waiting
    for the pipes of the processes.
    """

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._next_ticket = 0
        self._waiting: deque[int] = deque()  # tickets of calls not sent to a process yet
        self._calls: dict[int, Call] = {}  # by ticket, until they finish
        self._children: list[_Child] = []
        self._pipes = selectors.DefaultSelector()

    @property
    def num_workers(self) -> int:
        return self._num_workers

    def submit(self, call: Call) -> int:
        check_shared(call.folder)
        ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        self._calls[ticket] = call
        self._waiting.append(ticket)
        self._give_out_calls()
        return ticket

    def wait(self, seconds: float) -> list[Finished]:
        self._give_out_calls()
        finished = [self._read(key.data) for key, _ in self._pipes.select(seconds)]
        self._give_out_calls()
        return [one for one in finished if one is not None]

    def cancel(self, ticket: int) -> None:
        if self._calls.pop(ticket, None) is None:
            return
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        for child in [child for child in self._children if child.ticket == ticket]:
            self._end(child)

    def close(self) -> None:
        """Kill all processes, even busy ones."""
        for child in self._children:
            child.process.kill()
        for child in list(self._children):
            self._end(child)
        self._pipes.close()

    def _give_out_calls(self) -> None:
        while self._waiting and (child := self._free_child()) is not None:
            child.ticket = self._waiting.popleft()
            if child.is_ready:
                self._send_call(child)

    def _free_child(self) -> _Child | None:
        for child in self._children:
            if child.ticket is None:
                return child
        if len(self._children) == self._num_workers:
            return None
        try:
            process = start_process(ONE_THREAD)
        except OSError:  # the process limit is reached: continue with the running ones
            if not self._children:
                raise
            self._num_workers = len(self._children)
            return None
        child = _Child(process)
        self._children.append(child)
        assert process.stdout is not None
        self._pipes.register(process.stdout, selectors.EVENT_READ, child)
        return child

    def _read(self, child: _Child) -> Finished | None:
        """Read a message of a process: ready, an outcome or an error; the end of its pipe means that it died."""
        ticket = child.ticket
        try:
            if not child.is_ready:
                await_ready(child.process, REMEDY)
                limits = (pieces.TIMEOUT_SECONDS, pieces.TIMEOUT_SECONDS_PER_MB)
                send_to(child.process, ("gristmill.executors.process_worker", (os.getpid(),), limits))
                child.is_ready = True
                self._send_call(child)
                return None
            answer, failure = receive_from(child.process, REMEDY)
        except WorkerError as error:
            self._end(child)
            if ticket is None:
                return None
            del self._calls[ticket]
            return Finished(ticket, error=error, worker_died=True, node=platform.node())
        assert ticket is not None
        child.ticket = None
        del self._calls[ticket]
        return _finished(ticket, answer, failure)

    def _send_call(self, child: _Child) -> None:
        if child.ticket is None:
            return  # cancelled meanwhile
        with suppress(WorkerError):  # the process died, which `wait` notices by its pipe
            send_to(child.process, astuple(self._calls[child.ticket]))

    def _end(self, child: _Child) -> None:
        assert child.process.stdout is not None
        self._children.remove(child)
        self._pipes.unregister(child.process.stdout)
        child.process.kill()
        child.process.communicate()
        running_workers.discard(child.process.pid)


def _finished(ticket: int, answer: Any, failure: Any) -> Finished:
    if failure is not None:
        return Finished(ticket, error=unpack_error(*failure))
    return Finished(ticket, outcome=unpack_outcome(answer))
