"""ReadAhead: a thread that computes the next items of a sequence in advance."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from gristmill.trace import span

__all__ = ["ReadAhead"]

NUM_AHEAD = 2

Item = TypeVar("Item")


class ReadAhead(Generic[Item]):
    """`take(i, stride)` returns make(i), computed in advance as long as consecutive calls differ by `stride`.

    Other calls work too, but wait for the item. `make` must return the same for the same number. An exception of `make`
    is raised by the `take` of that item. A forked child starts a new thread.
    """

    def __init__(self, make: Callable[[int], Item], *, initializer: Callable[[], None] | None = None) -> None:
        """The thread starts at the first `take`, and calls `initializer` first."""
        self._make = make
        self._initializer = initializer
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        # Items after the last one taken, in steps of `stride`.
        self._ahead: deque[tuple[int, Future[Item]]] = deque()
        self._stride = 0

    def take(self, number: int, stride: int) -> Item:
        """Return item `number`, and start computing the next ones."""
        if self._process != os.getpid():  # after a fork, the thread is gone and its lock may be stuck
            self._reset()
        with self._lock:
            item = self._future(number, stride)
            while len(self._ahead) < NUM_AHEAD:
                following = number + (len(self._ahead) + 1) * stride
                self._ahead.append((following, self._begun(following)))
        return item.result()

    def close(self) -> None:
        """Stop the thread. A later `take` starts another."""
        if self._process != os.getpid():
            self._reset()
        with self._lock:
            self._forget()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=True, cancel_futures=True)

    def _future(self, number: int, stride: int) -> Future[Item]:
        if self._ahead and self._ahead[0][0] == number and self._stride == stride:
            return self._ahead.popleft()[1]
        self._forget()
        self._stride = stride
        return self._begun(number)

    def _begun(self, number: int) -> Future[Item]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "gristmill-batches", self._initializer)
        return self._thread.submit(self._made, number)

    def _made(self, number: int) -> Item:
        with span("make batch"):
            return self._make(number)

    def _forget(self) -> None:
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()
