"""Measure the rows of the ablation one after another, each in a fresh process, and compare their merges.

The native core trains first; its merges are what the others must learn. A row that fails is recorded with the reason,
and the next one runs. An interruption keeps what was measured.

The time of a row with several threads or processes shows what they are worth only if CPU time / wall time > 1.3. A run
of the native core that stays below, and any run that other processes disturbed, is repeated once; the better run
counts. A row that stays below keeps its time, and the table marks it. The Python programs are not repeated for this:
most of their work is in one process, and a repetition takes a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from statistics import median
from typing import Any

from gristmill.arguments import check_vocab_size
from gristmill.bench.ablation.extrapolation import check_rule, course_of, estimate_merge_seconds
from gristmill.bench.ablation.rows import CORE, Row, chosen_rows, core_row, reason_to_skip
from gristmill.bench.contest import LEAST_CPU_PER_WALL
from gristmill.bench.corpora import Corpus
from gristmill.bench.fresh_process import ChildFailed, Sample, TimedOut, measure
from gristmill.bench.pipelines.tree_memory import TreeMemory
from gristmill.count import count_words
from gristmill.errors import CorpusError, OptionError
from gristmill.reference.ablation.naive import SPECIAL
from gristmill.reference.ablation.rare_words import MIN_COUNT, drop_rare
from gristmill.reference.pipeline import Pair
from gristmill.trace import span

__all__ = ["Ablation", "Measured", "Result", "run_ablation"]

NUM_SPECIALS = 1
CORE_ROUNDS = 3  # a run of the core takes milliseconds, so the median of several is used
EXTRA_RUNS = 1
MEMORY_INTERVAL_SECONDS = 0.1
# Pretokenizing, and one merge that begins before the time limit, take more time. A row that hangs must end too.
MORE_TIME_LIMITS, MORE_SECONDS = 3, 60
# Fewer measured merges say nothing about the others. With an inverted index the first merges are unlike the later ones.
MIN_FITTED, MIN_FITTED_INCREMENTAL = 10, 200


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The times, memory and merges of a row that ran."""

    pretokenize_seconds: float
    is_pretokenize_extrapolated: bool
    merge_seconds: float  # of all merges
    num_measured_merges: int
    num_merges: int
    total_seconds: float
    peak_bytes: int
    cpu_per_wall: float  # the median over the runs
    is_quiet: bool  # no other process used much CPU time during any run
    num_differing: int  # merges that differ from those of the core, position by position
    num_not_learned: int  # merges that the core did not learn at all, among as many
    first_difference: int | None  # number of the first such merge, from 1
    rule_check: Mapping[str, float] | None = None  # the rule of extrapolation, applied to the first merges
    all_seconds: list[float] = field(default_factory=list)  # every round
    repeated_seconds: list[float] = field(default_factory=list)  # runs that do not count, because a better one followed

    @property
    def is_extrapolated(self) -> bool:
        """Whether some of the merges were not learned."""
        return self.num_measured_merges < self.num_merges

    @property
    def merges_per_second(self) -> float:
        """The merges of the whole run divided by their time."""
        return self.num_merges / self.merge_seconds if self.merge_seconds else float("inf")


@dataclass(frozen=True)
class Result:
    """A row with its measurement, or with the reason why it has no times."""

    row: Row
    measured: Measured | None
    reason: str = ""  # such as "skipped: …", "timed out after 240 s", "other merges …"

    @property
    def has_few_cpus(self) -> bool:
        """Whether a row with several threads or processes kept hardly more than one CPU busy."""
        return self.measured is not None and _has_few_cpus(self.row, self.measured)


@dataclass
class Ablation:
    """All rows on one corpus."""

    corpus: Corpus
    vocab_size: int
    num_merges: int  # merges that the core learned
    time_limit: float
    results: list[Result] = field(default_factory=list)
    interruption: KeyboardInterrupt | None = None

    @property
    def num_wanted(self) -> int:
        """The merges that the vocabulary size asks for. The core learns fewer if no pair is left in the corpus."""
        return self.vocab_size - 256 - NUM_SPECIALS

    @property
    def is_core_right(self) -> bool:
        """Whether all exact rows have the same merges."""
        return not any(result.reason.startswith("other merges") for result in self.results)

    def as_json(self) -> dict[str, Any]:
        """Return the content of the JSON file."""
        rows = [
            {**asdict(result.row), "reason": result.reason, "measured": result.measured and asdict(result.measured)}
            for result in self.results
        ]
        return {
            "corpus": {"name": self.corpus.name, "what": self.corpus.what, "num_bytes": self.corpus.num_bytes},
            "vocab_size": self.vocab_size,
            "num_merges": self.num_merges,
            "time_limit_seconds": self.time_limit,
            "rows": rows,
        }


def run_ablation(
    corpus: Corpus,
    *,
    vocab_size: int,
    letters: Sequence[str],
    threads: Sequence[int],
    time_limit: float,
    num_extra_runs: int = EXTRA_RUNS,
    report: Callable[[str], None] = print,
) -> Ablation:
    """Measure the rows on a corpus.

    Args:
        corpus: The file to train on.
        vocab_size: Size of the vocabulary: 256 bytes, `<|endoftext|>` and the merges.
        letters: Rows to measure, "a" to "i".
        threads: Numbers of threads of the native core. Pools have as many processes as the largest.
        time_limit: Seconds that a row may learn merges. The time of the other merges is extrapolated.
        num_extra_runs: How often each run is repeated because other processes disturbed it, or because the threads of
            the native core had too few CPUs.
        report: Receives one line of progress at a time.

    Returns:
        The rows. If Ctrl-C interrupted the measurement, `interruption` is set, and the remaining rows have no times.

    Raises:
        OptionError: The vocabulary size leaves no merge to learn, or another argument is out of range.
        CorpusError: The native core cannot train on the corpus.
    """
    check_vocab_size(vocab_size, NUM_SPECIALS)
    if vocab_size == 256 + NUM_SPECIALS:
        raise OptionError(f"vocab_size={vocab_size} leaves no merge to learn. Pass vocab_size > {vocab_size}.")
    if time_limit <= 0:
        raise OptionError(f"time_limit must be > 0 seconds, got {time_limit:g}.")
    report(f"{corpus.name}: {corpus.megabytes:,.1f} MB, vocabulary {vocab_size:,}")
    timing = _Timing(corpus, vocab_size, time_limit)
    try:
        core = _merges(timing.measure(core_row(max(threads)))[0])
    except ChildFailed as error:
        raise CorpusError(f"{corpus.path}: the native core cannot train on this corpus: {error}") from error
    if not core:
        raise CorpusError(f"{corpus.path}: no pair to merge in this corpus. Pass a larger corpus.")
    ablation = Ablation(corpus, vocab_size, len(core), time_limit)
    rows = chosen_rows(letters, threads=threads)
    try:
        for row in rows:
            report(f"{row.label} …")
            ablation.results.append(_measure_row(row, timing, core, num_extra_runs))
            report(f"    {_in_short(ablation.results[-1])}")
    except KeyboardInterrupt as interruption:
        ablation.interruption = interruption
        missing = rows[len(ablation.results) :]
        ablation.results += [Result(row, None, "not measured") for row in missing]
    return ablation


class _Timing:
    """Runs rows in fresh processes, and knows what the time of a merge depends on."""

    def __init__(self, corpus: Corpus, vocab_size: int, time_limit: float) -> None:
        self.corpus, self.vocab_size, self.time_limit = corpus, vocab_size, time_limit
        self.work = cache(self._work)

    def measure(self, row: Row) -> tuple[Sample, int]:
        """Return one run of a row, and the peak memory of all its processes."""
        job = {
            "letter": row.letter,
            "path": str(self.corpus.path),
            "vocab_size": self.vocab_size,
            "num_workers": row.num_workers,
            "time_limit": self.time_limit,
        }
        timeout = (1 + MORE_TIME_LIMITS) * self.time_limit + MORE_SECONDS
        with TreeMemory(MEMORY_INTERVAL_SECONDS) as memory:
            sample = measure(row.module, job, num_threads=row.num_workers, timeout_seconds=timeout)
        return sample, max(memory.peak_bytes, sample.peak_rss_bytes)

    def _work(self, core: tuple[Pair, ...], is_exact: bool, is_incremental: bool) -> list[tuple[float, float]]:
        counted = count_words(self.corpus.path, special_tokens=[SPECIAL], progress=None)
        words = dict(counted.items())
        return course_of(list(words if is_exact else drop_rare(words)), core).work(is_incremental=is_incremental)


def _measure_row(row: Row, timing: _Timing, core: Sequence[Pair], num_extra_runs: int) -> Result:
    reason = reason_to_skip(row, timing.corpus.path)
    if reason is not None:
        return Result(row, None, f"skipped: {reason}")
    samples: list[tuple[Sample, int]] = []
    num_runs = CORE_ROUNDS if row.letter == CORE else 1
    try:
        most = num_runs * (1 + num_extra_runs)
        while len(samples) < most and sum(not _is_disturbed(row, each) for each, _ in samples) < num_runs:
            with span(row.label, workers=row.num_workers):
                samples.append(timing.measure(row))
    except TimedOut as error:
        return Result(row, None, f"{error}, before the first merges")
    except ChildFailed as error:
        return Result(row, None, str(error))
    samples.sort(key=lambda each: (_is_disturbed(row, each[0]), _foreign_cpus(each[0])))
    samples, repeated = samples[:num_runs], samples[num_runs:]
    sample, peak_bytes = sorted(samples, key=lambda each: each[0].seconds)[len(samples) // 2]
    facts, merges = sample.facts, _merges(sample)
    compared = core[: len(merges)]
    differing = [i for i, (own, right) in enumerate(zip(merges, compared, strict=False)) if own != right]
    is_short = facts["is_complete"] and len(merges) != len(core)
    if row.is_exact and (differing or is_short):
        where = f"from merge {differing[0] + 1:,} on" if differing else f"{len(merges):,} instead of {len(core):,}"
        return Result(row, None, f"other merges than the native core, {where}; no time is shown")
    if not merges:
        return Result(row, None, f"skipped: no word occurs {MIN_COUNT} times or more, so no pair is left to merge")
    times = [float(seconds) for seconds in facts.get("merge_seconds", [])]
    needed = MIN_FITTED_INCREMENTAL if row.is_incremental else MIN_FITTED
    if not facts["is_complete"] and len(times) < needed:
        learned = f"{len(times):,} in {timing.time_limit:g} s"
        return Result(row, None, f"too few merges to extrapolate: {learned}; {needed} are needed")
    merge_seconds = facts.get("total_merge_seconds", sum(times))
    rule_check = None
    if times:
        work = timing.work(tuple(core), row.is_exact, row.is_incremental)
        if facts["is_complete"]:
            rule_check = check_rule(times, work[: len(times)])
        else:
            merge_seconds = estimate_merge_seconds(times, work)
    pretokenize_seconds = float(facts["pretokenize_seconds"])
    measured = Measured(
        pretokenize_seconds=pretokenize_seconds,
        is_pretokenize_extrapolated=bool(facts.get("is_pretokenize_extrapolated")),
        merge_seconds=merge_seconds,
        num_measured_merges=len(merges),
        num_merges=len(merges) if facts["is_complete"] else len(core),
        total_seconds=pretokenize_seconds + merge_seconds if times else median(each.seconds for each, _ in samples),
        peak_bytes=peak_bytes,
        cpu_per_wall=median(each.cpu_per_wall for each, _ in samples),
        is_quiet=all(each.quiet for each, _ in samples),
        num_differing=len(differing),
        num_not_learned=len(set(merges) - set(compared)),
        first_difference=differing[0] + 1 if differing else None,
        rule_check=rule_check,
        all_seconds=[each.seconds for each, _ in samples],
        repeated_seconds=[each.seconds for each, _ in repeated],
    )
    return Result(row, measured)


def _has_few_cpus(row: Row, run: Sample | Measured) -> bool:
    return row.num_workers > 1 and run.cpu_per_wall <= LEAST_CPU_PER_WALL


def _is_disturbed(row: Row, sample: Sample) -> bool:
    """Return whether a run should be repeated."""
    return not sample.quiet or (row.letter == CORE and _has_few_cpus(row, sample))


def _foreign_cpus(sample: Sample) -> float:
    """Return the CPUs that other processes kept busy."""
    return (sample.foreign_cpu_seconds or 0.0) / sample.seconds


def _merges(sample: Sample) -> list[Pair]:
    return [(bytes.fromhex(left), bytes.fromhex(right)) for left, right in sample.facts["merges"]]


def _in_short(result: Result) -> str:
    measured = result.measured
    if measured is None:
        return result.reason
    about = "about " if measured.is_extrapolated or measured.is_pretokenize_extrapolated else ""
    learned = f"{measured.num_measured_merges:,} of {measured.num_merges:,} merges learned"
    return f"{about}{measured.total_seconds:,.2f} s, {learned}"
