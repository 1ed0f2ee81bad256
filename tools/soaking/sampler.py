"""What a process uses, and what a run has left behind. Reads /proc."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MARK = "GRISTMILL_SOAK_RUN"  # environment variable of every process of a run
SETTLED_SECONDS = 0.5
MOST_SETTLING_SECONDS = 8.0


@dataclass(frozen=True)
class Look:
    """What a process used at a moment, in seconds since the work began."""

    seconds: float
    memory_bytes: int
    """Resident memory without pages of files: these belong to the cache of the system."""
    num_files: int
    num_threads: int
    is_quiet: bool
    """Whether all work was paused."""


def look_at(pid: int, seconds: float, *, is_quiet: bool = False) -> Look:
    """Return what a process uses now. Raises OSError if it is gone."""
    process = Path("/proc") / str(pid)
    lines = (line.split() for line in (process / "status").read_text().splitlines())
    status = {words[0]: words[1] for words in lines if len(words) > 1}
    if "RssAnon:" not in status:
        raise ProcessLookupError(f"process {pid} has ended")  # its parent has not noticed yet
    memory = 1024 * (int(status["RssAnon:"]) + int(status["RssShmem:"]))
    return Look(seconds, memory, len(list((process / "fd").iterdir())), int(status["Threads:"]), is_quiet)


def settle(pids: Iterable[int]) -> None:
    """Wait until the open files and threads of processes no longer change, because a server closes its connections."""
    pids = list(pids)
    since = began = time.monotonic()
    before: object = None
    while time.monotonic() - since < SETTLED_SECONDS and time.monotonic() - began < MOST_SETTLING_SECONDS:
        looks = [look_at(pid, 0) for pid in pids]
        now = [(each.num_files, each.num_threads) for each in looks]
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.05)


def processes_of(run: str) -> dict[int, str]:
    """Return the command lines of all processes of a run, except this one."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                environment = (entry / "environ").read_bytes().split(b"\0")
                if f"{MARK}={run}".encode() in environment:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(entry.name)] = command.strip()
    return found


def temporary_files(folder: Path, temporary: Path) -> list[str]:
    """Return files in the folder for temporary files, and files elsewhere whose name says that they are temporary."""
    found = {*temporary.rglob("*"), *folder.rglob(".*.tmp.*"), *folder.rglob(".replaced*")}
    return sorted(str(path.relative_to(folder)) for path in found)
