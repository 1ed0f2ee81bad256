"""Data wait: the time in which a device has nothing to do because the next batch has not arrived.

On a CPU that is the time the host waits. The host runs ahead of a GPU: while it waits for a batch, the GPU is mostly
still busy with earlier steps, and only what is left after those is idle time.
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
    """Collects the time that is lost to waiting for data."""

    def waiting(self) -> AbstractContextManager[None]:
        """A block in which the host waits for data."""

    def seconds(self) -> float:
        """The time lost since the last restart. The device has finished all its work."""

    def restart(self) -> None:
        """Begin at 0."""


class HostWait:
    """The time that the host waits: where it is the device itself."""

    def __init__(self) -> None:
        self._seconds = 0.0

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for data in this block."""
        begin = time.perf_counter()
        yield
        self._seconds += time.perf_counter() - begin

    def seconds(self) -> float:
        """The time in such blocks."""
        return self._seconds

    def restart(self) -> None:
        """Begin at 0."""
        self._seconds = 0.0


class Mark(Protocol):
    """A place in the queue of a device, as a `torch.cuda.Event` is one."""

    def query(self) -> bool:
        """Whether the device has passed it."""

    def elapsed_time(self, end_event: Any, /) -> float:
        """Milliseconds from when the device passed this one until it passed the other."""


def mark_on(device: torch.device) -> Callable[[], Mark]:
    """A function that puts a mark at the end of the queue of a GPU."""
    return partial(_mark, device)


def _mark(device: torch.device) -> Mark:
    event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    mark: Mark = event
    return mark


class DeviceWait:
    """The time that a device stands idle while the host waits for data.

    A mark before the wait is passed when the device has done all it was given, a mark after it when it has the batch:
    from one to the other it had nothing to do. Nothing waits for the marks: those that were passed are read later.
    """

    def __init__(self, mark: Callable[[], Mark]) -> None:
        """Measure with what `mark` returns, which is put at the end of the device's queue."""
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
        """The time between the marks that were passed."""
        self._read_passed()
        return self._seconds

    def restart(self) -> None:
        """Begin at 0; marks that are not passed yet belong to what was before."""
        self._seconds = 0.0
        self._marks.clear()
