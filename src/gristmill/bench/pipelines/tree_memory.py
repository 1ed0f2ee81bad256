"""Measure the total memory of all descendants of this process, sampled while they run.

    with TreeMemory() as memory:
        measure(...)
    memory.peak_bytes

One process counts by its resident set; several by their proportional sets, in which a shared page counts once. Mapped
files count as far as they are resident. Reads /proc, so it works on Linux only.
"""

import os
import threading
import time
from pathlib import Path
from types import TracebackType

INTERVAL_SECONDS = 0.02
PROC = Path("/proc")


class TreeMemory:
    """The peak memory of the descendants: in total, and without the contents of files."""

    def __init__(self, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._interval_seconds = interval_seconds
        self.peak_bytes = 0
        self.peak_anonymous_bytes = 0
        self.num_samples = 0
        # A child has our command and memory until it executes the measured program.
        self._own_command = _command(os.getpid())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "TreeMemory":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = time.monotonic() + self._interval_seconds
            held = [_memory(pid) for pid in descendants(os.getpid()) if _command(pid) != self._own_command]
            size = "Rss:" if len(held) == 1 else "Pss:"
            self.peak_bytes = max(self.peak_bytes, sum(each.get(size, 0) for each in held))
            anonymous = sum(each.get("Pss_Anon:", 0) for each in held)
            self.peak_anonymous_bytes = max(self.peak_anonymous_bytes, anonymous)
            self.num_samples += 1


def descendants(pid: int) -> list[int]:
    """Return the processes that `pid` and its descendants started and that have not ended."""
    found, unvisited = [], [pid]
    while unvisited:
        children = _children(unvisited.pop())
        found += children
        unvisited += children
    return found


def _children(pid: int) -> list[int]:
    """Return the children of all threads, because any thread may have started a process."""
    children: list[int] = []
    for path in PROC.glob(f"{pid}/task/*/children"):
        children += map(int, _text(path).split())
    return children


def _memory(pid: int) -> dict[str, int]:
    """Return the sizes of a process from the kernel, in bytes; empty if it has ended."""
    lines = (line.split() for line in _text(PROC / str(pid) / "smaps_rollup").splitlines()[1:])
    return {fields[0]: int(fields[1]) * 1024 for fields in lines}


def _command(pid: int) -> str:
    return _text(PROC / str(pid) / "cmdline")


def _text(path: Path) -> str:
    """Return an empty text if the process has ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
