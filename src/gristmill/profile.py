"""Profile of a run: time, counts and memory of each stage."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.notebook import html_table
from gristmill.trace import span

__all__ = ["Clock", "Profile", "Stage", "TaskTime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a run. A number that does not apply to the stage is None."""

    # Training: "count", "join", "setup", "merge". Encoding a corpus: "read", "find", "encode", "write", "sync".
    stage: str
    seconds: float
    num_bytes: int | None = None  # corpus bytes read
    num_words: int | None = None  # distinct pieces
    num_pieces: int | None = None  # all pieces, including repeats
    num_symbols: int | None = None  # bytes of all distinct words, where the merge loop starts
    num_pairs: int | None = None
    num_rounds: int | None = None
    num_merges: int | None = None
    num_spilled_runs: int | None = None
    num_tokens: int | None = None
    device: str = "cpu"  # or the names of the GPUs, separated by ", "
    device_reason: str = ""  # why this device was chosen; empty if there was no choice


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTime:
    """Time of one task of a job, and where the task ran."""

    stage: str  # "count" | "merge" | "encode" | "assemble"
    number: int
    node: str  # machine
    worker: str  # process or thread on that machine
    seconds: float
    num_bytes: int  # size of the task's inputs or outputs
    attempts: int  # more than 1 if a worker died, its files were damaged, or a slow task was started a second time
    is_reused: bool  # an earlier run had completed this task
    peak_memory_bytes: int | None = None  # of the process
    began: float | None = None  # seconds since 1970, by the clock of the machine


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Profile:
    """Time and memory of one run, by stage.

    The times of the stages are wall-clock time in the native core. `seconds` is the time of the whole call, so the
    difference is the time spent in Python.

    Attributes:
        stages: The stages in the order in which they ran, each with `stage`, `seconds`, its counts, `device` and
            `device_reason`.
        seconds: Wall-clock time of the whole call.
        num_threads: Number of threads used.
        peak_memory_bytes: Largest resident memory of the process since it started. None if the system does not report
            it.
        tasks: Time of each task, if an executor ran tasks. Empty for threads without a work folder.
        merge_counts: Count of each learned merge's pair when it was chosen, in order. It never rises. None if the run
            learned no merges.
        memory: Resident memory over time, as (seconds since the run began, bytes). Empty unless the run was inside
            `gm.recording`.

    Examples:
        >>> import gristmill as gm
        >>> profile = gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=None).profile
        >>> [stage.stage for stage in profile.stages]
        ['count', 'join', 'setup', 'merge']
    """

    stages: tuple[Stage, ...]
    seconds: float
    num_threads: int
    peak_memory_bytes: int | None
    tasks: tuple[TaskTime, ...] = ()
    # Not compared, because the comparison of two arrays is an array.
    merge_counts: NDArray[np.uint64] | None = field(default=None, compare=False)
    memory: tuple[tuple[float, int], ...] = ()

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
    """Seconds per stage of a run whose stages alternate. The times of several threads add up."""

    def __init__(self, *stages: str) -> None:
        self.began = time.perf_counter()
        self.seconds = dict.fromkeys(stages, 0.0)

    @property
    def total_seconds(self) -> float:
        """Seconds since the clock was created."""
        return time.perf_counter() - self.began

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the time of the `with` block to `stage`."""
        began = time.perf_counter()
        with span(stage):
            yield
        self.seconds[stage] += time.perf_counter() - began

    def stages(self, **figures: Any) -> tuple[Stage, ...]:
        """Return one `Stage` per stage, each with these numbers."""
        return tuple(Stage(stage=stage, seconds=seconds, **figures) for stage, seconds in self.seconds.items())


def peak_memory_bytes() -> int | None:
    """Return the peak resident memory of this process, or None if the system does not report it."""
    try:
        # Not ru_maxrss, which a process inherits from its parent. The name of a process, in the first line, may be any
        # bytes: that of a script is cut after 15 of them.
        status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
