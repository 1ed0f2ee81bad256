"""Run the entries of a table in alternation, each in fresh processes; an entry without a result keeps the reason."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from gristmill.bench.fresh_process import ChildFailed, Sample
from gristmill.trace import span

__all__ = ["LEAST_CPU_PER_WALL", "NOT_COMPARED", "OURS", "Entry", "Mark", "Rounds", "attempt", "marks_of", "run_rounds"]

OURS = "gristmill"
# A time counts only if the output is known to be right.
NOT_COMPARED = "not compared, because gristmill failed"
LEAST_CPU_PER_WALL = 1.3


@dataclass
class Entry:
    """One row of a table with its runs (disturbed ones separately), or the reason why there are none."""

    system: str
    form: str  # which function of the system; empty if there is only one
    num_threads: int
    run: Callable[[], Sample]  # raises ChildFailed with the reason if there is no valid result
    slow: bool = False
    runs: list[Sample] = field(default_factory=list)
    repeated: list[Sample] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    problem: str | None = None

    @property
    def name(self) -> str:
        """System and form, as tables show them."""
        return f"{self.system}, {self.form}" if self.form else self.system

    @property
    def is_ours(self) -> bool:
        """Whether this is a row of gristmill."""
        return self.system == OURS

    @property
    def is_measured(self) -> bool:
        """Whether the entry has a valid time."""
        return self.problem is None and bool(self.runs)

    @property
    def outcome(self) -> str:
        """The reason why there is no time; empty for an entry with a time."""
        return "" if self.is_measured else self.problem or "not measured"

    @property
    def is_charted(self) -> bool:
        """Whether a chart shows the entry: a system that cannot take part is in the table only."""
        return not self.outcome.startswith(("not installed", "cannot"))

    @property
    def seconds(self) -> list[float]:
        """Of each run."""
        return [run.seconds for run in self.runs]

    @property
    def cpu_per_wall(self) -> float:
        """The median over the runs."""
        return median(run.cpu_per_wall for run in self.runs)

    def as_data(self) -> dict[str, Any]:
        """For the JSON file."""
        return {
            "system": self.system,
            "form": self.form,
            "num_threads": self.num_threads,
            "problem": None if self.is_measured else self.outcome,
            "runs": list(map(asdict, self.runs)),
            "disturbed_and_repeated": list(map(asdict, self.repeated)),
            "memory": self.memory,
        }


@dataclass(frozen=True)
class Rounds:
    """How often each entry runs."""

    num_rounds: int
    num_slow_rounds: int
    num_extra: int = 5  # disturbed runs of an entry that are repeated
    timeout_seconds: float = 900


def run_rounds(
    entries: Sequence[Entry], rounds: Rounds, *, starved: Callable[[Entry, Sample], bool] | None = None
) -> KeyboardInterrupt | None:
    """Run the entries in alternation, every other round in reverse, so that none always follows the same one.

    Progress goes to stderr. An entry that fails keeps the reason as its `problem` and is not run again.

    Args:
        entries: The rows of the table.
        rounds: How often each entry runs.
        starved: Whether a run got too few CPUs and must be repeated; None never repeats a run for this reason.

    Returns:
        The interruption if Ctrl-C or SIGTERM ended the rounds early: report what there is, then raise it.
    """
    try:
        for number in range(rounds.num_rounds):
            for entry in reversed(entries) if number % 2 else entries:
                limit = rounds.num_slow_rounds if entry.slow else rounds.num_rounds
                if entry.problem is None and number < limit:
                    head = f"round {number + 1} of {limit}: {entry.name}, {entry.num_threads}t"
                    _run_once(entry, head, min(rounds.num_extra, 1) if entry.slow else rounds.num_extra, starved)
    except KeyboardInterrupt as interruption:
        print("interrupted: writing what was measured", file=sys.stderr)
        return interruption
    return None


def _run_once(entry: Entry, head: str, num_extra: int, starved: Callable[[Entry, Sample], bool] | None) -> None:
    """Add one run to the entry, repeated if it was disturbed, or the problem if it failed."""
    while (sample := attempt(entry, head)) is not None:
        disturbed = not sample.quiet or (starved is not None and starved(entry, sample))
        if not disturbed or len(entry.repeated) >= num_extra:
            entry.runs.append(sample)
            return
        entry.repeated.append(sample)


def attempt(entry: Entry, head: str) -> Sample | None:
    """Return one run, or None with the problem written into the entry."""
    try:
        with span(entry.name, threads=entry.num_threads):
            sample = entry.run()
    except ChildFailed as reason:
        entry.problem = str(reason)
        print(f"{head}: {entry.problem}", file=sys.stderr)
        return None
    quiet = "" if sample.quiet else "  (disturbed by other processes)"
    peak = f"{sample.peak_rss_bytes / 1e6:,.0f} MB"
    print(f"{head}: {sample.seconds:.3f} s  CPU/wall {sample.cpu_per_wall:.2f}  {peak}{quiet}", file=sys.stderr)
    return sample


Mark = tuple[str, Callable[[Entry, Sequence[Entry]], bool], str]


def marks_of(entry: Entry, entries: Sequence[Entry], marks: Sequence[Mark]) -> str:
    """Return the marks after the name of an entry."""
    return "".join(mark for mark, applies, _ in marks if entry.is_measured and applies(entry, entries))


def few_cpus(entry: Entry, _entries: Sequence[Entry]) -> bool:
    """Whether a row for several threads kept hardly more than one CPU busy."""
    return entry.num_threads > 1 and entry.cpu_per_wall <= LEAST_CPU_PER_WALL


def noisy(entry: Entry, _entries: Sequence[Entry]) -> bool:
    """Whether a run shared the machine with other processes."""
    return not all(run.quiet for run in entry.runs)


def fewer_runs(entry: Entry, entries: Sequence[Entry]) -> bool:
    """Whether other rows have more runs."""
    return len(entry.runs) < max(len(each.runs) for each in entries)


MARKS: tuple[Mark, ...] = (
    ("†", few_cpus, "CPU/wall at most 1.3: the system has little parallel work, or its threads had to wait"),
    ("‡", noisy, "some runs shared the machine with other processes"),
    ("§", fewer_runs, "fewer runs, because it is slow or the run was interrupted"),
)


def notes_of(entries: Sequence[Entry], marks: Sequence[Mark] = MARKS) -> list[str]:
    """Return the explanation of each mark that occurs, and a warning if the machine was busy most of the time."""
    measured = [entry for entry in entries if entry.is_measured]
    notes = [f"{mark} {what}." for mark, applies, what in marks if any(applies(each, entries) for each in measured)]
    runs = [run for entry in measured for run in entry.runs]
    if sum(not run.quiet for run in runs) * 2 > len(runs):
        notes.append(
            "**Busy machine**: other processes ran during most of the runs, so the times say little. Repeat the "
            "benchmark on an idle machine."
        )
    return notes
