"""The bars of a run, as Markdown and as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from gristmill.bench.tables import markdown_table
from soaking.conductor import Outcome
from soaking.sampler import Look

WARM_UP_SHARE, WINDOW_SHARE = 0.2, 0.2
MOST_TRACEBACKS = 20


@dataclass(frozen=True)
class Growth:
    """A long-lived process in the window after the warm-up and in the last window."""

    process: str
    first_bytes: float
    last_bytes: float
    peak_bytes: int
    first_files: float
    last_files: float
    first_threads: float
    last_threads: float

    @property
    def percent(self) -> float:
        """Growth of the memory."""
        return 100 * (self.last_bytes / self.first_bytes - 1)


def growth_of(process: str, looks: list[Look]) -> Growth:
    """Compare the medians of both windows. Only pauses count: an operation uses memory and files while it runs."""
    end = max(look.seconds for look in looks)
    quiet = [look for look in looks if look.is_quiet]
    begin = WARM_UP_SHARE * end
    first = [look for look in quiet if begin < look.seconds <= begin + WINDOW_SHARE * end] or quiet[:1]
    last = [look for look in quiet if look.seconds > (1 - WINDOW_SHARE) * end] or quiet[-1:]
    return Growth(
        process,
        median(look.memory_bytes for look in first),
        median(look.memory_bytes for look in last),
        max(look.memory_bytes for look in looks),
        median(look.num_files for look in first),
        median(look.num_files for look in last),
        median(look.num_threads for look in first),
        median(look.num_threads for look in last),
    )


def bars(outcome: Outcome, *, most_growth: float) -> list[tuple[str, str, bool]]:
    """Return each bar, what was found, and whether it holds."""
    growths = growths_of(outcome)
    worst = max((growth.percent for growth in growths), default=0.0)
    files = max((growth.last_files - growth.first_files for growth in growths), default=0.0)
    hosts = [growth for growth in growths if growth.process in outcome.hosts]
    threads = max((growth.last_threads - growth.first_threads for growth in hosts), default=0.0)
    idle = [kind for kind, counts in outcome.operations.items() if not counts.total()]
    return [
        ("errors: 0", str(len(outcome.errors)), not outcome.errors),
        ("kinds without an operation: 0", str(len(idle)), not idle),
        (f"memory growth of each process: at most {most_growth:g} %", f"{worst:+.2f} %", worst <= most_growth),
        ("more open files at the end: 0", f"{files:+g}", files <= 0),
        ("more threads at the end: 0", f"{threads:+g}", threads <= 0),
        ("threads left: 0", str(len(outcome.threads_left)), not outcome.threads_left),
        ("processes left: 0", str(len(outcome.processes_left)), not outcome.processes_left),
        ("temporary files left: 0", str(len(outcome.files_left)), not outcome.files_left),
    ]


def growths_of(outcome: Outcome) -> list[Growth]:
    """Return the growth of each process that was seen in a pause."""
    looks = outcome.looks.items()
    return [growth_of(name, each) for name, each in looks if any(look.is_quiet for look in each)]


def body_of(outcome: Outcome, *, most_growth: float) -> str:
    """Return the report as Markdown."""
    found = bars(outcome, most_growth=most_growth)
    parts = [
        markdown_table(
            ["bar", "found", "holds"], [[bar, text, "yes" if holds else "NO"] for bar, text, holds in found]
        ),
        f"Operations in {outcome.seconds / 60:.1f} minutes:",
        markdown_table(["kind", "operation", "number"], operation_rows(outcome)),
        f"Long-lived processes in pauses, when no operation runs. Each pair is the median from {WARM_UP_SHARE:.0%} to "
        f"{WARM_UP_SHARE + WINDOW_SHARE:.0%} of the time and that of the last {WINDOW_SHARE:.0%}. The peak is that of "
        "the whole run, under load.",
        markdown_table(
            ["process", "memory", "growth", "peak", "open files", "threads"], list(map(_cells, growths_of(outcome)))
        ),
    ]
    for title, lines in (
        ("Threads left", outcome.threads_left),
        ("Processes left", outcome.processes_left),
        ("Temporary files left", outcome.files_left),
    ):
        if lines:
            parts.append("\n".join([f"{title}:", "", *(f"* `{line}`" for line in lines)]))
    for error in outcome.errors[:MOST_TRACEBACKS]:
        parts.append(f"Error in {error.where}:\n\n```\n{error.text.rstrip()}\n```")
    return "\n\n".join(parts)


def operation_rows(outcome: Outcome) -> list[list[str]]:
    """Return a row per kind and operation."""
    return [
        [kind, operation, f"{number:,}"]
        for kind, counts in outcome.operations.items()
        for operation, number in [*sorted(counts.items()), ("all", counts.total())]
    ]


def _cells(growth: Growth) -> list[str]:
    first, last, peak = (value / 2**20 for value in (growth.first_bytes, growth.last_bytes, growth.peak_bytes))
    return [
        growth.process,
        f"{first:.1f} → {last:.1f} MiB",
        f"{growth.percent:+.2f} %",
        f"{peak:.1f} MiB",
        f"{growth.first_files:g} → {growth.last_files:g}",
        f"{growth.first_threads:g} → {growth.last_threads:g}",
    ]


def data_of(outcome: Outcome, *, most_growth: float) -> dict[str, Any]:
    """Return the outcome for the JSON file, with every look in a pause."""
    return {
        "seconds": outcome.seconds,
        "bars": [
            {"bar": bar, "found": text, "holds": holds} for bar, text, holds in bars(outcome, most_growth=most_growth)
        ],
        "operations": outcome.operations,
        "processes": [{**asdict(growth), "percent": growth.percent} for growth in growths_of(outcome)],
        "errors": [asdict(error) for error in outcome.errors],
        "threads_left": outcome.threads_left,
        "processes_left": outcome.processes_left,
        "files_left": outcome.files_left,
        "pauses": {name: [asdict(look) for look in each if look.is_quiet] for name, each in outcome.looks.items()},
    }
