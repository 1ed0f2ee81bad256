"""Worker processes for patterns without a native matcher: the `regex` module holds the GIL while it matches."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gristmill.errors import WorkerError
from gristmill.pretokenize import pieces
from gristmill.pretokenize.worker import READY, receive, send, unpack_error
from gristmill.progress import running_workers

if TYPE_CHECKING:
    import subprocess


REMEDY = "pass a smaller num_threads, or smaller documents"


class WorkerPool:
    """Processes that answer requests, started when they are needed and then kept until the `with` block ends.

    module: has a function `serve(*settings)`, which each process calls once for the function that answers requests.

    They are plain children (`python -c …`), not `multiprocessing` ones: that module would run the user's script again
    in every worker unless it is guarded by `if __name__ == "__main__"`. Each is a session of its own, so that Ctrl-C
    reaches only the parent, which then ends them.
    """

    def __init__(self, module: str, settings: tuple[Any, ...], num_workers: int) -> None:
        self._first_message = (module, settings, (pieces.TIMEOUT_SECONDS, pieces.TIMEOUT_SECONDS_PER_MB))
        self._num_workers = num_workers
        self._workers: list[subprocess.Popen[bytes]] = []
        self._new: set[subprocess.Popen[bytes]] = set()  # that have not been told their module yet
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._starting = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, *request: Any) -> Any:
        """The answer to a request, from a worker that is idle or a new one. Any number of threads may ask at once."""
        worker = self._idle_worker()
        try:
            if worker in self._new:
                self._new.remove(worker)
                await_ready(worker)
                send_to(worker, self._first_message)
            send_to(worker, request)
            answer, failure = receive_from(worker)
        finally:
            self._idle.put(worker)  # a dead one too: whoever takes it next reports that
        if failure is not None:
            raise unpack_error(*failure)
        return answer

    def stop(self) -> None:
        """End all workers: whoever waits for an answer gets a WorkerError."""
        with self._starting:
            self._is_closed = True
            for worker in self._workers:
                worker.kill()

    def close(self) -> None:
        """End all workers and wait until they have ended. Nobody may be asking any more."""
        self.stop()
        for worker in self._workers:
            worker.communicate()
            running_workers.discard(worker.pid)

    def _idle_worker(self) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._is_closed:
                raise WorkerError("the worker processes were ended while they had work to do. Run again.")
            if self._idle.empty() and len(self._workers) < self._num_workers:
                try:
                    return self._start_worker()
                except OSError:  # the system has no more processes: those there are do the work
                    if not self._workers:
                        raise
                    self._num_workers = len(self._workers)
        return self._idle.get()

    def _start_worker(self) -> subprocess.Popen[bytes]:
        worker = start_process()
        self._workers.append(worker)
        self._new.add(worker)
        return worker


def start_process(environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A new worker process, which first sends READY.

    environment: variables that it has besides those of this process.
    """
    import subprocess  # not at the top: native patterns never need it

    path = list(map(str, sys.path))
    code = f"import sys; sys.path[:] = {path!r}; from gristmill.pretokenize.worker import main; main()"
    worker = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **environment} if environment else None,
    )
    running_workers.add(worker.pid)  # a bar shows their CPU time too
    return worker


def await_ready(worker: subprocess.Popen[bytes], remedy: str = REMEDY) -> None:
    """Read what a new worker prints until it is ready; WorkerError if it ends before."""
    assert worker.stdout is not None
    while line := worker.stdout.readline():
        if line.endswith(READY):
            return
    raise died(worker, remedy)


def send_to(worker: subprocess.Popen[bytes], message: Any) -> None:
    """Send a worker a message of plain values; WorkerError if it has ended."""
    assert worker.stdin is not None
    try:
        send(message, worker.stdin)
    except BrokenPipeError:
        raise died(worker) from None


def receive_from(worker: subprocess.Popen[bytes], remedy: str = REMEDY) -> Any:
    """The next message of a worker; WorkerError if it has ended."""
    assert worker.stdout is not None
    try:
        return receive(worker.stdout)
    except EOFError:
        raise died(worker, remedy) from None


def died(worker: subprocess.Popen[bytes], remedy: str = REMEDY) -> WorkerError:
    """The error that says how a worker has ended.

    remedy: what to do if the machine had no memory left.
    """
    import subprocess

    try:
        status = worker.wait(1)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
        return WorkerError("a worker process sent something that is no answer. Its own messages are on stderr.")
    advice = "Its own messages are on stderr."
    if status == -9:
        advice = f"Usually the machine had no memory left: {remedy}."
    return WorkerError(f"a worker process ended with status {status} before it answered. {advice}")
