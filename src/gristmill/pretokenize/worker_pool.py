"""Worker processes for patterns without a native matcher, because the `regex` module holds the GIL while it matches."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Mapping
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gristmill.errors import WorkerError
from gristmill.pretokenize import pieces
from gristmill.pretokenize.worker import READY, receive, send, unpack_error
from gristmill.progress import running_workers
from gristmill.trace import add_task

if TYPE_CHECKING:
    import subprocess


REMEDY = "pass a smaller num_threads, or smaller documents"


class WorkerPool:
    """Processes that answer requests. They are started when needed and kept until the `with` block ends.

    module: has a function `serve(*settings)` that returns the function that answers requests. Each process calls it
        once.

    The processes are plain children (`python -c …`). `multiprocessing` would run the user's script again in every
    worker unless it is guarded by `if __name__ == "__main__"`. Each process has its own session, so that Ctrl-C reaches
    only the parent, which then stops them.
    """

    def __init__(self, module: str, settings: tuple[Any, ...], num_workers: int) -> None:
        self._first_message = (module, settings, (pieces.TIMEOUT_SECONDS, pieces.TIMEOUT_SECONDS_PER_MB))
        self._num_workers = num_workers
        self._workers: list[subprocess.Popen[bytes]] = []
        self._new: set[subprocess.Popen[bytes]] = set()  # workers that have not received the first message
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
        """Return the answer of an idle or new worker to a request. Several threads may ask at once."""
        worker = self._idle_worker()
        began = time.time()
        try:
            if worker in self._new:
                self._new.remove(worker)
                await_ready(worker)
                send_to(worker, self._first_message)
            send_to(worker, request)
            answer, failure = receive_from(worker)
            add_task(
                "match pattern",
                node=platform.node(),
                worker=str(worker.pid),
                began=began,
                seconds=time.time() - began,
                num_bytes=0,
            )
        finally:
            self._idle.put(worker)  # even if it died: the next request to it then raises WorkerError
        if failure is not None:
            raise unpack_error(*failure)
        return answer

    def stop(self) -> None:
        """Stop all workers. Threads that wait for an answer get a WorkerError."""
        with self._starting:
            self._is_closed = True
            for worker in self._workers:
                worker.kill()

    def close(self) -> None:
        """Stop all workers and wait for them. No thread may be waiting for an answer."""
        self.stop()
        for worker in self._workers:
            worker.communicate()
            running_workers.discard(worker.pid)

    def _idle_worker(self) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._is_closed:
                raise WorkerError("the worker processes were stopped before they had finished. Run again.")
            if self._idle.empty() and len(self._workers) < self._num_workers:
                try:
                    return self._start_worker()
                except OSError:  # the system allows no more processes, so use the running ones
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
    """Start a worker process, which first sends READY.

    environment: additional environment variables.
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
    running_workers.add(worker.pid)  # so that progress bars include its CPU time
    return worker


def await_ready(worker: subprocess.Popen[bytes], remedy: str = REMEDY) -> None:
    """Read the output of a new worker until it is ready. Raises WorkerError if it ends first."""
    assert worker.stdout is not None
    while line := worker.stdout.readline():
        if line.endswith(READY):
            return
    raise died(worker, remedy)


def send_to(worker: subprocess.Popen[bytes], message: Any) -> None:
    """Send a message of plain values to a worker. Raises WorkerError if it has ended."""
    assert worker.stdin is not None
    try:
        send(message, worker.stdin)
    except BrokenPipeError:
        raise died(worker) from None


def receive_from(worker: subprocess.Popen[bytes], remedy: str = REMEDY) -> Any:
    """Return the next message of a worker. Raises WorkerError if it has ended."""
    assert worker.stdout is not None
    try:
        return receive(worker.stdout)
    except EOFError:
        raise died(worker, remedy) from None


def died(worker: subprocess.Popen[bytes], remedy: str = REMEDY) -> WorkerError:
    """Return the error for a worker that has ended.

    remedy: advice if the machine ran out of memory.
    """
    import subprocess

    try:
        status = worker.wait(1)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
        return WorkerError("a worker process sent an invalid answer. See its messages on stderr.")
    advice = "See its messages on stderr."
    if status == -9:
        advice = f"The usual cause is that the machine ran out of memory: {remedy}."
    return WorkerError(f"a worker process ended with status {status} before it answered. {advice}")
