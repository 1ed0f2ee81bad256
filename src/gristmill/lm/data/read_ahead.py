"""Items of a sequence made by a thread a few ahead of their consumer."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

__all__ = ["ReadAhead"]

NUM_AHEAD = 2

Item = TypeVar("Item")


class ReadAhead(Generic[Item]):
    """`take(i, stride)` is make(i), ready before it is asked for as long as calls go by equal strides.

    Other calls are answered just as well, only later. `make` must give the same for the same number. What it raises
    is raised by the `take` that asks for that item. In a forked child a new thread starts.
    """

    def __init__(self, make: Callable[[int], Item], *, initializer: Callable[[], None] | None = None) -> None:
        """No thread is started before the first `take`; it calls `initializer` first."""
        self._make = make
        self._initializer = initializer
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        # The items after the last one that was taken, in steps of `stride`.
        self._ahead: deque[tuple[int, Future[Item]]] = deque()
        self._stride = 0

    def take(self, number: int, stride: int) -> Item:
        """Item `number`; the next ones are begun."""
        if self._process != os.getpid():  # a fork copies neither the thread nor the state of a lock it may have held
            self._begin_anew()
        with self._lock:
            item = self._future(number, stride)
            while len(self._ahead) < NUM_AHEAD:
                following = number + (len(self._ahead) + 1) * stride
                self._ahead.append((following, self._begun(following)))
        return item.result()

    def close(self) -> None:
        """End the thread. A later `take` starts another."""
        if self._process != os.getpid():
            self._begin_anew()
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
        return self._thread.submit(self._make, number)

    def _forget(self) -> None:
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()
