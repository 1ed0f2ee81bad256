"""Figures of a run: what each stage did and how long it took."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Profile", "Stage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One row of the table; a figure that means nothing for a stage is None."""

    stage: str  # "count" | "join" | "setup" | "merge"; of a corpus "read" | "find" | "encode" | "write" | "sync"
    seconds: float
    num_bytes: int | None = None  # corpus bytes read
    num_words: int | None = None  # distinct pieces
    num_pieces: int | None = None  # pieces, every occurrence
    num_symbols: int | None = None  # bytes of all distinct words: what the merge loop starts from
    num_pairs: int | None = None
    num_rounds: int | None = None
    num_merges: int | None = None
    num_spilled_runs: int | None = None
    num_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The stages of one run, in order, and the most memory the process has had since it started.

    Times are wall time inside the core; `seconds` is that of the whole call, so the difference is Python's share.
    """

    stages: tuple[Stage, ...]
    seconds: float
    num_threads: int
    peak_memory_bytes: int | None


def peak_memory_bytes() -> int | None:
    """The largest resident size this process has had, or None where the system does not tell."""
    try:
        # Not ru_maxrss, which a process inherits from the one that started it.
        status = Path("/proc/self/status").read_text()
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
