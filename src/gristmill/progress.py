"""Progress of a run, reported ten times per second as bars, JSON lines or calls of a function.

| progress | effect |
|---|---|
| `"auto"` | bars on a terminal or in a notebook, once the run has taken half a second; otherwise silent |
| `"bar"` | bars on stderr |
| `"jsonl"` | one JSON object per line on stderr |
| a callable | called with a `Progress`; an exception that it raises cancels the run |
| `None` | silent, at no cost: the core makes no calls |
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

# Arguments: (stage, done, total). Encoding a corpus adds initial=, tokens=, files= and num_files=; the tasks of an
# executor add initial=, parts=, num_parts=, retries=, reused= and copies=.
OnProgress: TypeAlias = Callable[..., object]
ProgressOption: TypeAlias = "Literal['auto', 'bar', 'jsonl'] | Callable[[Progress], object] | None"

# Most runs on small corpora end sooner. A bar that only flashes up is noise, and importing tqdm takes 60 ms.
AUTO_DELAY_SECONDS = 0.5

# The core reports that it is setting up, but not how far it is.
_SETUP_BAR = "{l_bar}{bar}| [{elapsed}{postfix}]"

_UNITS = {
    **dict.fromkeys(("count", "spill", "join", "encode", "assemble", "verify"), "bytes"),
    "setup": "symbols",
    "merge": "merges",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """One progress report: how far a stage is, its speed, and the CPU and memory in use.

    Attributes:
        stage: "count", "spill", "join", "setup", "merge", "encode", "assemble" or "verify".
        done: Units done so far.
        total: Units in all; 0 if unknown.
        unit: "bytes", "symbols" or "merges".
        seconds: Time since the stage began.
        rate: Units per second since the stage began.
        resident_bytes: Resident memory, including worker processes. None if the system does not report it.
        cpu_percent: CPU use since the previous report, including worker processes. 100 is one busy core.
        initial: Units that an earlier, resumed run had done.
        tokens: Tokens encoded so far in this run. Only while a corpus is encoded.
        files: Files done so far. Only while a corpus is encoded.
        num_files: Files in all. Only while a corpus is encoded.
        parts: Tasks of this stage that are done. Only with an executor that runs tasks.
        num_parts: Tasks of this stage in all.
        retries: Tasks that ran again because a worker died or a file was damaged.
        reused: Tasks, out of `parts`, that an earlier run had done.
        copies: Slow tasks that were started a second time on another worker.

    Examples:
        >>> import gristmill as gm
        >>> reports = []
        >>> tok = gm.train_tokenizer(["low low low lower lowest"], vocab_size=261, progress=reports.append)
        >>> reports[-1].stage, reports[-1].done, reports[-1].total, reports[-1].unit
        ('merge', 4, 4, 'merges')
    """

    stage: str
    done: int
    total: int
    unit: str
    seconds: float
    rate: float
    resident_bytes: int | None
    cpu_percent: float
    initial: int = 0
    tokens: int | None = None
    files: int | None = None
    num_files: int | None = None
    parts: int | None = None
    num_parts: int | None = None
    retries: int | None = None
    reused: int | None = None
    copies: int | None = None


@contextlib.contextmanager
def open_progress(progress: Any = "auto") -> Iterator[OnProgress | None]:
    """Yield the `on_progress` argument of the core: a function (stage, done, total), or None for no reports.

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
        raise OptionError(f"progress={progress!r} is not valid. Pass 'auto', 'bar', 'jsonl', a callable, or None.")


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


def _someone_is_watching() -> bool:
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _unless_it_fails(show: Callable[..., object]) -> Callable[..., None]:
    """Return `show` without its write errors: a stderr on a full disk must not end hours of work."""

    def shown(*arguments: object) -> None:
        with contextlib.suppress(OSError, ValueError):
            show(*arguments)

    return shown


def _print_json(report: Progress) -> None:
    print(json.dumps(dataclasses.asdict(report)), file=sys.stderr, flush=True)


class _Meter:
    """Turns the core's reports into `Progress` objects and passes them to `show`."""

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
            # The first report of a stage comes after it began; the stage began at the last report of the one before.
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
        if elapsed < 0.02:  # CPU clocks are too coarse for a percentage over so short a time
            return
        used = cpu_seconds()  # of all threads and workers: four busy ones are 400 %
        self._cpu_percent = 100 * max(0.0, used - self._cpu_seconds) / elapsed
        self._cpu_seconds = used


# Process ids of the running workers. The code that starts a worker adds its id, and removes it when the worker ends.
running_workers: set[int] = set()


def cpu_seconds() -> float:
    """Return the CPU time used by this process, its worker processes and its finished children.

    On a system without /proc, the time of a worker is added when it ends.
    """
    times = os.times()
    ended = times.children_user + times.children_system
    return time.process_time() + ended + sum(map(_cpu_seconds_of, tuple(running_workers)))


def _cpu_seconds_of(process: int) -> float:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123  ten times a second
            # The program name is the second field, in parentheses, and may contain any character.
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def resident_bytes(process: int | str = "self") -> int | None:
    """Return the resident memory of this or another process; None if the system does not report it."""
    try:
        with open(f"/proc/{process}/statm", "rb") as file:  # noqa: PTH123  ten times a second
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _resident_bytes_of_all() -> int | None:
    own = resident_bytes()
    return None if own is None else own + sum(resident_bytes(worker) or 0 for worker in tuple(running_workers))


class _Bars:
    """One tqdm bar per stage."""

    def __init__(self, *, delay_seconds: float) -> None:
        self._visible_from = time.perf_counter() + delay_seconds
        self._bars: dict[str, Any] = {}  # open bars by stage

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
        # A stage that is partly done is only interrupted, and continues in its own line later. A stage that never
        # reported progress has ended, because another one has begun.
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
        smoothing=0,  # the mean rate since the stage began, as in the final report
        bar_format=_SETUP_BAR if report.stage == "setup" else None,
        file=sys.stderr,
    )
    bar.start_t -= report.seconds  # the stage began before its bar did
    return bar


def bar_class() -> Any:
    """Return the tqdm class for a terminal or a notebook, without its monitor thread."""
    if _in_notebook():
        from tqdm.auto import tqdm
    else:
        from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        # The core reports regularly, so no monitor is needed, and an extra thread makes fork() unsafe.
        monitor_interval = 0

    return Bar
