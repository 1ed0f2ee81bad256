"""Figures of a run: what each stage did and how long it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gristmill.notebook import html_table

__all__ = ["Clock", "Profile", "Stage", "TaskTime"]


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
class TaskTime:
    """How long one task of a job took, and where it ran."""

    stage: str  # "count" | "merge" | "encode" | "assemble"
    number: int
    node: str  # the machine
    worker: str  # the process or thread on it
    seconds: float
    num_bytes: int  # of the inputs, or of what was made of them
    attempts: int  # 1 unless a worker died, its files were damaged, or it was slow and begun a second time
    is_reused: bool  # an earlier run had done it
    peak_memory_bytes: int | None = None  # of the process


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Profile:
    """The stages of one run, in order, and the most memory the process has had since it started.

    Times are wall time inside the core; `seconds` is that of the whole call, so the difference is Python's share.
    """

    stages: tuple[Stage, ...]
    seconds: float
    num_threads: int
    peak_memory_bytes: int | None
    tasks: tuple[TaskTime, ...] = ()  # of a job whose parts were run by an executor

    def __repr__(self) -> str:
        stages = ", ".join(f"{stage.stage} {stage.seconds:.2f}" for stage in self.stages)
        memory = f", peak memory {_megabytes(self.peak_memory_bytes)}" if self.peak_memory_bytes is not None else ""
        return f"<Profile: {self.seconds:.2f} s ({stages}), {_threads(self.num_threads)}{memory}>"

    def _repr_html_(self) -> str:
        rows = [(stage.stage, f"{stage.seconds:.3f} s") for stage in self.stages]
        rows += [("total", f"{self.seconds:.3f} s"), ("threads", f"{self.num_threads:,}")]
        if self.peak_memory_bytes is not None:
            rows.append(("peak memory", _megabytes(self.peak_memory_bytes)))
        return html_table("Profile", rows)


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"


def _threads(number: int) -> str:
    return f"{number:,} thread{'s' * (number != 1)}"


class Clock:
    """Seconds by stage of a run whose stages take turns; the times of several threads add up."""

    def __init__(self, *stages: str) -> None:
        self._began = time.perf_counter()
        self.seconds = dict.fromkeys(stages, 0.0)

    @property
    def total_seconds(self) -> float:
        """Since the clock was made."""
        return time.perf_counter() - self._began

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the time that the `with` block takes."""
        began = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - began

    def stages(self, **figures: int) -> tuple[Stage, ...]:
        """The rows of a profile, each with these figures."""
        return tuple(Stage(stage=stage, seconds=seconds, **figures) for stage, seconds in self.seconds.items())


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
