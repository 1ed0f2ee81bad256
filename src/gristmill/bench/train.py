"""Train a byte-level BPE tokenizer with gristmill and other systems on the same file; compare time and memory.

Every run is a fresh process; time is measured inside it, without imports. The systems run in alternation, round by
round. The merges are compared before a time counts: gristmill's (tie_break="huggingface") must equal those of
`tokenizers`, and those of every other system must equal gristmill's on the same texts with the same tie-break rule. A
system with other merges is a row without a time.

A result for several threads counts only if they really ran: CPU time / wall time > 1.3. A disturbed run (gristmill
below 1.3, or other processes used more than a tenth of a CPU) is repeated, up to five times per system.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from gristmill.bench import reference_digests
from gristmill.bench.adapters import Adapter, find_adapters
from gristmill.bench.charts import Bar, bar_chart
from gristmill.bench.contest import (
    LEAST_CPU_PER_WALL,
    MARKS,
    NOT_COMPARED,
    OURS,
    Entry,
    Rounds,
    marks_of,
    notes_of,
    run_rounds,
)
from gristmill.bench.corpora import Corpus
from gristmill.bench.fresh_process import ChildFailed, Sample, measure
from gristmill.bench.machine import describe_run, version
from gristmill.bench.pages import Page, chart_caption, plural, publish_page, short
from gristmill.bench.published import training_table
from gristmill.bench.rivals import SYSTEMS, Follows, TrainJob
from gristmill.bench.tables import markdown_table, middle_and_spread
from gristmill.errors import CorpusError, OptionError
from gristmill.trace import span

__all__ = ["SYSTEMS", "bench_train"]

PACKAGE = "gristmill.bench.rivals"
REFERENCE = "tokenizers"
OTHER_MERGES = "other merges"
NUM_SPECIAL = 257  # 256 bytes and <|endoftext|>


@dataclass(frozen=True)
class Comparison:
    """The digest of gristmill's merges for every rule that it could follow, and whether `tokenizers` agrees."""

    digests: dict[Follows, str]
    problem: str | None  # of gristmill
    remark: str


def bench_train(
    corpus: Corpus, *, vocab_size: int, num_threads: int, rounds: Rounds, systems: Sequence[str], folder: Path
) -> int:
    """Measure the training of every system, print the table and write the result.

    Args:
        corpus: The text.
        vocab_size: Number of tokens: 256 bytes, merges, and one special token.
        num_threads: Threads of every system.
        rounds: How often each system runs.
        systems: Names from `SYSTEMS`, or dotted names of your own adapters.
        folder: Folder to write to.

    Returns:
        The exit code: 0, or 1 if gristmill itself failed or learned other merges than `tokenizers`.

    Raises:
        CorpusError: The corpus has no pair to merge.
        OptionError: The corpus is too small for the vocabulary, or a system is not known.
        KeyboardInterrupt: Ctrl-C ended the rounds; what was measured has been written.
    """
    job = TrainJob(str(corpus.path), vocab_size - NUM_SPECIAL, num_threads, corpus.distinct_byte_values())
    adapters = find_adapters(systems, package=PACKAGE, known=SYSTEMS, needs=["FOLLOWS"])
    with span("compare outputs"):
        comparison = _compare(adapters, job, corpus, rounds)
    entries = [_entry(adapter, job, comparison, rounds) for adapter in adapters]
    interruption = run_rounds(entries, rounds, starved=_starved)
    _judge_ours(entries, comparison)
    page = _page(entries, adapters, corpus, vocab_size, num_threads, comparison)
    publish_page(page, folder, is_interrupted=interruption is not None)
    if interruption is not None:
        raise interruption
    return 1 if comparison.problem or any(entry.is_ours and entry.problem for entry in entries) else 0


def _compare(adapters: Sequence[Adapter], job: TrainJob, corpus: Corpus, rounds: Rounds) -> Comparison:
    """Train with gristmill once per rule of the systems, and compare the first result with `tokenizers`."""
    rules = dict.fromkeys([Follows(), *(_follows(adapter) for adapter in adapters if adapter.problem is None)])
    digests: dict[Follows, str] = {}
    for follows in rules:
        check = replace(job, **asdict(follows))
        try:
            facts = measure(
                f"{PACKAGE}.{OURS}", asdict(check), num_threads=job.num_threads, timeout_seconds=rounds.timeout_seconds
            ).facts
        except ChildFailed as reason:
            if follows == Follows():
                return Comparison({}, str(reason), f"gristmill failed, so no merges were compared: {reason}.")
            print(f"no merges of gristmill to compare ({follows}): {reason}", file=sys.stderr)
            continue
        if not facts["num_merges"]:
            raise CorpusError(f"{corpus.path.name}: no pair to merge in this corpus. Pass a larger corpus.")
        if facts["num_merges"] < job.num_merges:
            raise OptionError(
                f"{corpus.name} ({corpus.megabytes:.1f} MB) is too small for the vocabulary: it has "
                f"{facts['num_merges']:,} merges, and {job.num_merges:,} are needed. Pass --vocab-size "
                f"{facts['num_merges'] + NUM_SPECIAL} or less, or a larger corpus."
            )
        digests[follows] = facts["digest"]
    is_timed = any(adapter.system == REFERENCE and adapter.problem is None for adapter in adapters)
    if is_timed or version(REFERENCE) == "-":
        return Comparison(digests, None, "")
    try:
        theirs = reference_digests.tokenizers_digest(job, corpus, timeout_seconds=rounds.timeout_seconds)
    except ChildFailed as reason:
        return Comparison(digests, None, f"The merges were not compared with {REFERENCE}: {reason}.")
    if theirs is None:
        limit = reference_digests.MAX_BYTES / 1e6
        return Comparison(digests, None, f"The corpus is over {limit:,.0f} MB: not compared with {REFERENCE}.")
    wrong = None if theirs == digests[Follows()] else f"{OTHER_MERGES} than {REFERENCE} {version(REFERENCE)}"
    return Comparison(digests, wrong, "" if wrong else f"Merges of gristmill and {REFERENCE} compared and equal.")


def _follows(adapter: Adapter) -> Follows:
    return Follows(**adapter.facts["FOLLOWS"])


def _entry(adapter: Adapter, job: TrainJob, comparison: Comparison, rounds: Rounds) -> Entry:
    run = partial(_run, adapter, job, comparison, rounds)
    entry = Entry(adapter.system, "", job.num_threads, run, slow=bool(adapter.facts.get("SLOW")))
    entry.problem = adapter.problem
    return entry


def _run(adapter: Adapter, job: TrainJob, comparison: Comparison, rounds: Rounds) -> Sample:
    """Return one run whose merges are those of gristmill with the same rule."""
    expected = comparison.digests.get(_follows(adapter))
    if expected is None:
        raise ChildFailed(NOT_COMPARED)
    sample = measure(adapter.module, asdict(job), num_threads=job.num_threads, timeout_seconds=rounds.timeout_seconds)
    if sample.facts.get("digest") != expected:
        raise ChildFailed(OTHER_MERGES)
    return sample


def _judge_ours(entries: Sequence[Entry], comparison: Comparison) -> None:
    """Blame gristmill where it differs from `tokenizers`, which defines the merges."""
    problem = comparison.problem
    for entry in entries:
        if entry.system == REFERENCE and entry.problem == OTHER_MERGES:
            problem = f"{OTHER_MERGES} than {REFERENCE} {version(REFERENCE)}"
    for entry in entries:
        if entry.is_ours and problem is not None:
            entry.problem = problem


def _starved(entry: Entry, sample: Sample) -> bool:
    """Return whether a run got too few CPUs. Other systems may leave CPUs idle."""
    return entry.is_ours and entry.num_threads > 1 and sample.cpu_per_wall <= LEAST_CPU_PER_WALL


HEADER = ["system", "runs", "median s", "min–max", "MB/s", "time / ours", "CPU s", "CPU/wall", "peak MB", "merges"]


def _page(
    entries: Sequence[Entry],
    adapters: Sequence[Adapter],
    corpus: Corpus,
    vocab_size: int,
    num_threads: int,
    comparison: Comparison,
) -> Page:
    ours = next((median(entry.seconds) for entry in entries if entry.is_ours and entry.is_measured), None)
    title = (
        f"Training: {corpus.name} ({corpus.megabytes:.1f} MB), vocabulary {vocab_size:,}, "
        f"{plural(num_threads, 'thread')}"
    )
    timed = [
        f"* {adapter.system}: {adapter.facts.get('TIMED', '–')}. Threads: {adapter.facts.get('THREADS', '–')}."
        + ("" if entry.is_ours else f" Merges equal to those of gristmill ({_follows(adapter)}).")
        for adapter, entry in zip(adapters, entries, strict=True)
        if entry.is_measured
    ]
    parts = [
        markdown_table(HEADER, [_row(entry, entries, corpus, ours) for entry in entries]),
        *notes_of(entries),
        _memory_note(entries),
        comparison.remark,
        "In the timed region, imports excluded:\n" + "\n".join(timed) if timed else "",
        "Published figures, from other machines:\n\n" + training_table(),
    ]
    about = {"corpus": corpus.what} | describe_run(adapter.distribution for adapter in adapters)
    bars = [_bar(entry, ours) for entry in entries if entry.is_charted]
    return Page(
        f"train_{corpus.name}_{vocab_size}_{num_threads}t",
        title,
        about,
        parts,
        {"num_bytes": corpus.num_bytes, "entries": [entry.as_data() for entry in entries]},
        bar_chart(f"{title}: seconds", bars, caption=chart_caption(about)),
    )


def _memory_note(entries: Sequence[Entry]) -> str:
    """Return how much memory the processes had before the clock started."""
    starts = [run.start_rss_bytes / 1e6 for entry in entries if entry.is_measured for run in entry.runs]
    if not starts:
        return ""
    return (
        f"peak MB: high-water mark of the process. The interpreter and imports, gristmill's included, are "
        f"{min(starts):.0f} to {max(starts):.0f} MB of it."
    )


def _row(entry: Entry, entries: Sequence[Entry], corpus: Corpus, ours: float | None) -> list[str]:
    if not entry.is_measured:
        return [entry.name, str(len(entry.runs)), *["–"] * (len(HEADER) - 3), entry.outcome]
    seconds = median(entry.seconds)
    return [
        f"{entry.name}{marks_of(entry, entries, MARKS)}",
        str(len(entry.runs)),
        *middle_and_spread(entry.seconds, digits=3),
        f"{corpus.megabytes / seconds:.1f}",
        "–" if ours is None else f"{seconds / ours:.2f}x",
        f"{median(run.cpu_seconds for run in entry.runs):.3f}",
        f"{entry.cpu_per_wall:.2f}",
        f"{median(run.peak_rss_bytes for run in entry.runs) / 1e6:.0f}",
        f"{entry.runs[0].facts['num_merges']:,} equal",
    ]


def _bar(entry: Entry, ours: float | None) -> Bar:
    if not entry.is_measured:
        return Bar(entry.name, [None], [entry.outcome], entry.is_ours)
    seconds = median(entry.seconds)
    ratio = f" ({seconds / ours:.1f}x)" if ours is not None and not entry.is_ours else ""
    spread = (min(entry.seconds), max(entry.seconds))
    return Bar(entry.name, [seconds], [f"{short(seconds)} s{ratio}"], entry.is_ours, [spread])
