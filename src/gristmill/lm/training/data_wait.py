"""Data wait: the time in which a device is idle because the next batch has not arrived.

On a CPU this is the time that the host waits. The host runs ahead of a GPU: while it waits for a batch, the GPU is
usually still busy with earlier steps, and only the time after those is idle time.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import torch

__all__ = ["DataWait", "DeviceWait", "HostWait", "mark_on"]


class DataWait(Protocol):
    """Measures the time lost to waiting for data."""

    def waiting(self) -> AbstractContextManager[None]:
        """Return a context in which the host waits for data."""

    def seconds(self) -> float:
        """Return the time lost since the last restart. The device must have finished all its work."""

    def restart(self) -> None:
        """Reset to 0."""


class HostWait:
    """Measures the time that the host waits, for a run on the CPU."""

    def __init__(self) -> None:
        self._seconds = 0.0

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for data in this block."""
        begin = time.perf_counter()
        yield
        self._seconds += time.perf_counter() - begin

    def seconds(self) -> float:
        """Return the time spent in these blocks."""
        return self._seconds

    def restart(self) -> None:
        """Reset to 0."""
        self._seconds = 0.0


class Mark(Protocol):
    """A position in the queue of a device, such as a `torch.cuda.Event`."""

    def query(self) -> bool:
        """Return whether the device has passed the mark."""

    def elapsed_time(self, end_event: Any, /) -> float:
        """Return the milliseconds between the device passing this mark and passing the other."""


def mark_on(device: torch.device) -> Callable[[], Mark]:
    """Return a function that puts a mark at the end of the queue of a GPU."""
    return partial(_mark, device)


def _mark(device: torch.device) -> Mark:
    event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    mark: Mark = event
    return mark


class DeviceWait:
    """Measures the time that a device is idle while the host waits for data.

    The device passes a mark before the wait when it has finished all queued work, and a mark after the wait when it has
    the batch. Between the two it is idle. The host does not wait for the marks: it reads passed marks later.
    """

    def __init__(self, mark: Callable[[], Mark]) -> None:
        """mark: function that puts a mark at the end of the device's queue and returns it."""
        self._mark = mark
        self._seconds = 0.0
        self._marks: deque[tuple[Mark, Mark]] = deque()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for data in this block."""
        before = self._mark()
        yield
        self._marks.append((before, self._mark()))
        self._read_passed()

    def _read_passed(self) -> None:
        while self._marks and self._marks[0][1].query():
            before, after = self._marks.popleft()
            self._seconds += before.elapsed_time(after) / 1e3

    def seconds(self) -> float:
        """Return the time between the passed marks."""
        self._read_passed()
        return self._seconds

    def restart(self) -> None:
        """Reset to 0, and drop marks that have not been passed yet."""
        self._seconds = 0.0
        self._marks.clear()
