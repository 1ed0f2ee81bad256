"""Progress: what the core reports ten times a second, as bars, JSON lines or calls of your own function.

| progress | gives |
|---|---|
| `"auto"` | bars on a terminal or in a notebook once the work has lasted half a second, otherwise silence |
| `"bar"` | bars on stderr, always |
| `"jsonl"` | one JSON object a line on stderr, for machines |
| a callable | it is called with a `Progress`; what it raises cancels the work |
| `None` | silence, at no cost: the core has nobody to call |
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gristmill.errors import OptionError

__all__ = ["OnProgress", "Progress", "ProgressOption", "open_progress"]

# (stage, done, total), and for the encoding of a corpus also initial=, tokens=, files= and num_files=; for the tasks of
# an executor initial=, parts=, num_parts=, retries=, reused= and copies=.
OnProgress: TypeAlias = Callable[..., object]
ProgressOption: TypeAlias = "Literal['auto', 'bar', 'jsonl'] | Callable[[Progress], object] | None"

# Most runs on small corpora end sooner; a bar that only flashes up is noise, and importing tqdm takes 60 ms.
AUTO_DELAY_SECONDS = 0.5

# The core says only that it is setting up, not how far it is.
_SETUP_BAR = "{l_bar}{bar}| [{elapsed}{postfix}]"

_UNITS = {
    **dict.fromkeys(("count", "spill", "join", "encode", "assemble", "verify"), "bytes"),
    "setup": "symbols",
    "merge": "merges",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """One report: how far a stage is, how fast, and what the process uses meanwhile."""

    stage: str  # "count" | "spill" | "join" | "setup" | "merge" | "encode" | "assemble" | "verify"
    done: int
    total: int  # 0 where it is not known
    unit: str  # "bytes" | "symbols" | "merges"
    seconds: float  # since the stage began
    rate: float  # units a second since the stage began
    resident_bytes: int | None  # worker processes included; None where the system does not tell
    cpu_percent: float  # 100 is one busy core; since the report before, worker processes included
    initial: int = 0  # done by an earlier run that this one goes on with
    tokens: int | None = None  # made so far in this run, while a corpus is encoded
    files: int | None = None  # of it that are done
    num_files: int | None = None
    parts: int | None = None  # tasks of this stage that are done, where an executor runs them
    num_parts: int | None = None
    retries: int | None = None  # tasks that ran again: a worker died, or a file was damaged
    reused: int | None = None  # of `parts`, those that an earlier run had done
    copies: int | None = None  # slow tasks that were begun a second time on another worker


@contextlib.contextmanager
def open_progress(progress: Any = "auto") -> Iterator[OnProgress | None]:
    """What to give the core as `on_progress`: a function (stage, done, total), or None for silence.

    >>> reports = []
    >>> with open_progress(reports.append) as on_progress:
    ...     _ = on_progress("count", 50, 100)
    >>> reports[0].stage, reports[0].done, reports[0].total, reports[0].unit
    ('count', 50, 100, 'bytes')
    """
    if progress is None or (progress == "auto" and not _someone_is_watching()):
        yield None
        return
    if callable(progress):
        yield _Meter(progress)
    elif progress == "jsonl":
        yield _Meter(_unless_it_fails(_print_json))
    elif progress in ("auto", "bar"):
        bars = _Bars(delay_seconds=AUTO_DELAY_SECONDS if progress == "auto" else 0.0)
        try:
            yield _Meter(_unless_it_fails(bars.show))
        finally:
            _unless_it_fails(bars.close)()
    else:
        raise OptionError(f"progress={progress!r} is not known. Pass 'auto', 'bar', 'jsonl', a callable, or None.")


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


def _someone_is_watching() -> bool:
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _unless_it_fails(show: Callable[..., object]) -> Callable[..., None]:
    """`show`, but a stderr that cannot be written to, such as one on a full disk, does not end hours of work."""

    def shown(*arguments: object) -> None:
        with contextlib.suppress(OSError, ValueError):
            show(*arguments)

    return shown


def _print_json(report: Progress) -> None:
    print(json.dumps(dataclasses.asdict(report)), file=sys.stderr, flush=True)


class _Meter:
    """Turns the core's three numbers into a `Progress` and hands it on."""

    def __init__(self, show: Callable[[Progress], object]) -> None:
        self._show = show
        self._stage = ""
        self._stage_began = self._reported = time.perf_counter()
        self._cpu_seconds = cpu_seconds()
        self._cpu_percent = 0.0

    def __call__(
        self,
        stage: str,
        done: int,
        total: int,
        *,
        initial: int = 0,
        **counts: int | None,
    ) -> None:
        now = time.perf_counter()
        if stage != self._stage:
            # The first report of a stage comes when it is already under way; it began where the one before ended.
            self._stage, self._stage_began = stage, self._reported
        seconds = now - self._stage_began
        self._measure_cpu(now)
        self._reported = now
        self._show(
            Progress(
                stage=stage,
                done=done,
                total=total,
                unit=_UNITS.get(stage, "steps"),
                seconds=seconds,
                rate=(done - initial) / seconds if seconds > 0 else 0.0,
                resident_bytes=_resident_bytes_of_all(),
                cpu_percent=self._cpu_percent,
                initial=initial,
                **counts,
            )
        )

    def _measure_cpu(self, now: float) -> None:
        elapsed = now - self._reported
        if elapsed < 0.02:  # clocks tick too coarsely for a share of so short a time
            return
        used = cpu_seconds()  # of all threads and workers, so that four busy ones are 400 %
        self._cpu_percent = 100 * max(0.0, used - self._cpu_seconds) / elapsed
        self._cpu_seconds = used


# The ids of the worker processes that run now: whoever starts one adds it, and takes it out when it has ended.
running_workers: set[int] = set()


def cpu_seconds() -> float:
    """The CPU time that this process, its worker processes and the children that have ended have used.

    Where the system has no /proc, that of a worker is added when it ends.
    """
    times = os.times()
    ended = times.children_user + times.children_system
    return time.process_time() + ended + sum(map(_cpu_seconds_of, tuple(running_workers)))


def _cpu_seconds_of(process: int) -> float:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123  ten times a second
            # The name of the program comes second, in parentheses, and may hold anything.
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def resident_bytes(process: int | str = "self") -> int | None:
    """The memory that this process, or another one, holds now; None where the system does not tell."""
    try:
        with open(f"/proc/{process}/statm", "rb") as file:  # noqa: PTH123  ten times a second
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _resident_bytes_of_all() -> int | None:
    own = resident_bytes()
    return None if own is None else own + sum(resident_bytes(worker) or 0 for worker in tuple(running_workers))


class _Bars:
    """One tqdm bar a stage."""

    def __init__(self, *, delay_seconds: float) -> None:
        self._visible_from = time.perf_counter() + delay_seconds
        self._bars: dict[str, Any] = {}  # by stage, those still open

    def show(self, report: Progress) -> None:
        bar = self._bars.get(report.stage)
        if bar is None:
            if time.perf_counter() < self._visible_from:
                return
            self._close_others()
            bar = self._bars[report.stage] = _new_bar(report)
        bar.total, bar.initial = report.total or None, report.initial
        bar.set_postfix_str(", ".join(_details(report)), refresh=False)
        bar.update(report.done - bar.n)

    def _close_others(self) -> None:
        # A stage that has got somewhere but not to its end is only interrupted, and goes on in its own line afterwards.
        # One that never said how far it was has ended, because another has begun.
        for stage, bar in list(self._bars.items()):
            if not 0 < bar.n < (bar.total or 0):
                bar.n = bar.total or bar.n
                self._bars.pop(stage).close()

    def close(self) -> None:
        for bar in self._bars.values():
            bar.close()


def _details(report: Progress) -> Iterator[str]:
    if report.tokens is not None and report.seconds > 0:
        yield f"{report.tokens / report.seconds / 1e6:,.1f}M tokens/s"
    if report.num_files is not None and report.num_files > 1:
        yield f"files {report.files:,}/{report.num_files:,}"
    if report.num_parts is not None:
        yield f"parts {report.parts:,}/{report.num_parts:,}"
    yield from (f"{number:,} {what}" for what, number in _events(report).items() if number)
    yield f"CPU {report.cpu_percent:.0f}%"
    if report.resident_bytes is not None:
        yield f"{report.resident_bytes / 1e6:,.0f} MB"


def _events(report: Progress) -> dict[str, int | None]:
    return {"reused": report.reused, "retried": report.retries, "slow": report.copies}


def _new_bar(report: Progress) -> Any:
    tqdm = bar_class()
    counts_bytes = report.unit == "bytes"
    bar = tqdm(
        desc=report.stage,
        total=report.total or None,
        initial=report.initial,
        unit="B" if counts_bytes else f" {report.unit}",
        unit_scale=True,
        dynamic_ncols=True,
        mininterval=0.05,
        miniters=0,
        smoothing=0,  # the mean since the stage began: what the report will say too
        bar_format=_SETUP_BAR if report.stage == "setup" else None,
        file=sys.stderr,
    )
    bar.start_t -= report.seconds  # the stage began before its bar did
    return bar


def bar_class() -> Any:
    """The tqdm of a terminal or a notebook, without its watching thread."""
    if _in_notebook():
        from tqdm.auto import tqdm
    else:
        from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        # The core reports steadily, and a thread would be in the way of fork().
        monitor_interval = 0

    return Bar
