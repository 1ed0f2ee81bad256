"""Measure how counting, training and encoding of gristmill scale with threads and with the size of the corpus.

Every run is a fresh process, in alternation. The results of all numbers of threads must be equal for each size, before
a time counts.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from gristmill.bench.charts import Bar, bar_chart, line_chart
from gristmill.bench.contest import MARKS, OURS, Entry, Rounds, marks_of, notes_of, run_rounds
from gristmill.bench.corpora import Corpus
from gristmill.bench.fresh_process import ChildFailed, ForeignCpu, Sample, cpu_seconds, measure
from gristmill.bench.machine import describe_run, num_cores
from gristmill.bench.pages import Page, chart_caption, publish_page
from gristmill.bench.pipeline import timed_region
from gristmill.bench.pipelines.one_run import Outcome, read_into_page_cache
from gristmill.bench.rivals import SPECIAL, merges_digest
from gristmill.bench.tables import markdown_table, middle_and_spread
from gristmill.count import Words, count_words
from gristmill.encode.tokenizer import Tokenizer
from gristmill.errors import EarlyStopWarning, EmptyCorpusError
from gristmill.publish import publish
from gristmill.train import train_tokenizer

__all__ = ["SIZES", "STAGES", "bench_scaling", "thread_counts"]

STAGES = ("count", "train", "encode")
SIZES = (Fraction(1, 16), Fraction(1, 4), Fraction(1))
OTHER_RESULT = "other result than with another number of threads"


@dataclass(frozen=True)
class StageJob:
    """One stage of gristmill on one text."""

    stage: str
    path: str
    num_threads: int
    vocab_size: int
    tokenizer: str  # file of the tokenizer that encodes


JOB = StageJob


@dataclass
class Row:
    """One entry of the table, with the share of the corpus that it reads."""

    size: Fraction
    num_bytes: int
    entry: Entry


def thread_counts() -> list[int]:
    """Return 1, 2, 4, … up to the number of CPUs, and that number."""
    cores = num_cores()
    return sorted({1 << i for i in range(cores.bit_length()) if 1 << i <= cores} | {cores})


def bench_scaling(
    corpus: Corpus,
    *,
    vocab_size: int,
    num_threads: Sequence[int],
    rounds: Rounds,
    folder: Path,
    sizes: Sequence[Fraction] = SIZES,
) -> int:
    """Measure every stage for every size and number of threads, print the table and write the result.

    Args:
        corpus: The text.
        vocab_size: Number of tokens: 256 bytes, merges, and one special token.
        num_threads: Numbers of threads.
        rounds: How often each row runs.
        folder: Folder to write to.
        sizes: Shares of the corpus. A share without text is skipped. A share that is too small for the vocabulary skips
            training.

    Returns:
        The exit code: 0, or 1 if a row failed or its result depends on the number of threads.

    Raises:
        CorpusError: The corpus has no text.
        KeyboardInterrupt: Ctrl-C ended the rounds; what was measured has been written.
    """
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as scratch:
        rows, skipped = _rows(corpus, vocab_size, num_threads, rounds, sizes, Path(scratch))
        interruption = run_rounds([row.entry for row in rows], rounds)
    page = _page(rows, skipped, corpus, vocab_size)
    publish_page(page, folder, is_interrupted=interruption is not None)
    if interruption is not None:
        raise interruption
    return 1 if any(row.entry.problem is not None for row in rows) else 0


def _rows(
    corpus: Corpus,
    vocab_size: int,
    num_threads: Sequence[int],
    rounds: Rounds,
    sizes: Sequence[Fraction],
    scratch: Path,
) -> tuple[list[Row], list[str]]:
    """Return the rows, and the reason for each one that is left out."""
    rows, skipped = [], []
    tok = _tokenizer(corpus.path, vocab_size)
    saved = scratch / "tokenizer.json"
    tok.save(saved)
    for size in sizes:
        path = _part(corpus, size, scratch)
        try:
            largest = _tokenizer(path, vocab_size).vocab_size
        except EmptyCorpusError:
            num_bytes = path.stat().st_size
            skipped.append(f"Skipped: the first {size} of the corpus ({num_bytes:,} bytes). This part has no text.")
            continue
        for stage in STAGES:
            if stage == "train" and largest < vocab_size:
                skipped.append(
                    f"Skipped: train, {path.stat().st_size / 1e6:.1f} MB. The text gives only {largest:,} of "
                    f"{vocab_size:,} tokens. Pass a smaller --vocab-size, or a larger corpus."
                )
                continue
            seen: dict[str, str] = {}
            for number in num_threads:
                job = StageJob(stage, str(path), number, vocab_size, str(saved))
                entry = Entry(OURS, stage, number, partial(_run, job, seen, rounds))
                rows.append(Row(size, path.stat().st_size, entry))
    return rows, skipped


def _tokenizer(path: Path, vocab_size: int) -> Tokenizer:
    """Return the tokenizer of a text, which may have fewer tokens than wanted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EarlyStopWarning)
        return train_tokenizer(str(path), vocab_size=vocab_size, special_tokens=[SPECIAL], progress=None)


def _part(corpus: Corpus, size: Fraction, scratch: Path) -> Path:
    """Return a file with the first share of the corpus, without an incomplete character at its end."""
    if size == 1:
        return corpus.path
    target = scratch / f"part_{size.numerator}_{size.denominator}.txt"
    rest = int(corpus.num_bytes * size)
    with corpus.path.open("rb") as source, publish(target, durable=False) as out:
        while rest and (block := source.read(min(rest, 1 << 24))):
            rest -= len(block)
            out.write(block if rest else block[: len(block) - _incomplete(block)])
    return target


def _incomplete(data: bytes) -> int:
    """Return the number of bytes of an incomplete character at the end.

    >>> _incomplete("aä".encode()), _incomplete("aä".encode()[:2])
    (0, 1)
    """
    for i in range(1, min(4, len(data) + 1)):
        if data[-i] & 0xC0 != 0x80:
            length = 1 if data[-i] < 0x80 else 2 if data[-i] < 0xE0 else 3 if data[-i] < 0xF0 else 4
            return i if length > i else 0
    return 0


def _run(job: StageJob, seen: dict[str, str], rounds: Rounds) -> Sample:
    """Return one run whose result equals the first one of the same stage and size."""
    sample = measure(__name__, asdict(job), num_threads=job.num_threads, timeout_seconds=rounds.timeout_seconds)
    if seen.setdefault("digest", sample.facts["digest"]) != sample.facts["digest"]:
        raise ChildFailed(OTHER_RESULT)
    return timed_region(sample)


def run(job: StageJob) -> Outcome:
    """Run the stage, in the measured process; loading the tokenizer is not timed."""
    work = {"count": _count, "train": _train, "encode": _encode}[job.stage](job)
    read_into_page_cache(Path(job.path))
    foreign, cpu, wall = ForeignCpu(), cpu_seconds(), time.perf_counter()
    result = work()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    return {
        "seconds": wall,
        "cpu_seconds": cpu,
        "foreign_cpu_seconds": foreign.since_start(own=cpu),
        "digest": _digest(result),
    }


def describe(outcome: Outcome) -> Outcome:
    """Return the measurements, which `run` has already made."""
    return outcome


def _count(job: StageJob) -> Callable[[], Any]:
    return lambda: count_words(
        job.path, pattern="gpt2", special_tokens=[SPECIAL], num_threads=job.num_threads, progress=None
    )


def _train(job: StageJob) -> Callable[[], Any]:
    return lambda: train_tokenizer(
        job.path,
        vocab_size=job.vocab_size,
        pattern="gpt2",
        special_tokens=[SPECIAL],
        num_threads=job.num_threads,
        progress=None,
    )


def _encode(job: StageJob) -> Callable[[], Any]:
    tok = Tokenizer.load(job.tokenizer)
    tok.encode("")
    return lambda: tok.encode_file(job.path, allowed_special="all", num_threads=job.num_threads)


def _digest(result: Any) -> str:
    """Return a digest of words, merges or ids."""
    if isinstance(result, Tokenizer):
        return str(merges_digest(result.merges)["digest"])
    if isinstance(result, Words):
        return hashlib.sha256(result.table.data.tobytes() + result.table.counts.tobytes()).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(result, dtype=np.uint32).data).hexdigest()


HEADER = ["stage", "MB", "threads", "runs", "median s", "min–max", "MB/s", "speed-up", "CPU/wall", "peak MB", "result"]
VERBS = {"count": "counting", "train": "training", "encode": "encoding"}


def _page(rows: Sequence[Row], skipped: Sequence[str], corpus: Corpus, vocab_size: int) -> Page:
    entries = [row.entry for row in rows]
    num_threads = sorted({entry.num_threads for entry in entries})
    title = f"Scaling: {corpus.name} ({corpus.megabytes:.1f} MB), vocabulary {vocab_size:,}"
    in_order = sorted(rows, key=lambda row: (STAGES.index(row.entry.form), row.size, row.entry.num_threads))
    parts = [
        markdown_table(HEADER, [_cells(row, rows) for row in in_order]),
        *notes_of(entries),
        *skipped,
        "count: from a file to words with counts. train: from a file to a tokenizer, counting included. encode: from a "
        "file to an array of ids, with a loaded tokenizer and empty caches. speed-up: against one thread, same size.",
    ]
    about = {"corpus": corpus.what} | describe_run([OURS])
    caption = chart_caption(about)
    charts = {"sizes": _size_chart(f"{title}: MB/s by size", in_order, num_threads, caption)}
    if len(num_threads) > 1:
        chart = _thread_chart(f"{title}: speed-up by threads", rows, caption)
    else:
        chart, charts = charts["sizes"], {}
    data = {
        "num_bytes": corpus.num_bytes,
        "vocab_size": vocab_size,
        "skipped": list(skipped),
        "entries": [{"num_bytes": row.num_bytes, **row.entry.as_data()} for row in in_order],
    }
    return Page(f"scaling_{corpus.name}_{max(num_threads)}t", title, about, parts, data, chart, charts)


def _cells(row: Row, rows: Sequence[Row]) -> list[str]:
    entry, size = row.entry, f"{row.num_bytes / 1e6:.1f}"
    if not entry.is_measured:
        return [entry.form, size, str(entry.num_threads), str(len(entry.runs)), *["–"] * 6, entry.outcome]
    ratio = _speed_up(row, rows)
    return [
        f"{entry.form}{marks_of(entry, [each.entry for each in rows], MARKS)}",
        size,
        str(entry.num_threads),
        str(len(entry.runs)),
        *middle_and_spread(entry.seconds, digits=4),
        f"{_speed(row):,.0f}",
        "–" if ratio is None else f"{ratio:.2f}x",
        f"{entry.cpu_per_wall:.2f}",
        f"{median(run.peak_rss_bytes for run in entry.runs) / 1e6:.0f}",
        "equal",
    ]


def _speed(row: Row) -> float:
    return row.num_bytes / 1e6 / median(row.entry.seconds)


def _speed_up(row: Row, rows: Sequence[Row]) -> float | None:
    """Return the time with one thread divided by the time of this row; None if that row is missing."""
    for other in rows:
        same = (other.entry.form, other.size) == (row.entry.form, row.size)
        if same and other.entry.num_threads == 1 and other.entry.is_measured:
            return median(other.entry.seconds) / median(row.entry.seconds)
    return None


def _thread_chart(title: str, rows: Sequence[Row], caption: str) -> str:
    largest = [row for row in rows if row.size == max(row.size for row in rows) and row.entry.is_measured]
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(largest, key=lambda row: row.entry.num_threads):
        if (ratio := _speed_up(row, rows)) is not None:
            lines.setdefault(VERBS[row.entry.form], []).append((row.entry.num_threads, ratio))
    return line_chart(title, lines, x_label="threads", y_label="speed-up against one thread", caption=caption)


def _size_chart(title: str, rows: Sequence[Row], num_threads: Sequence[int], caption: str) -> str:
    """Return bars for every stage and size, with the largest number of threads."""
    bars = []
    for row in rows:
        if row.entry.num_threads != num_threads[-1]:
            continue
        name = f"{VERBS[row.entry.form]} {row.num_bytes / 1e6:.1f} MB, {row.entry.num_threads}t"
        if row.entry.is_measured:
            bars.append(Bar(name, [_speed(row)], [f"{_speed(row):,.0f} MB/s"], row.size == 1))
        else:
            bars.append(Bar(name, [None], [row.entry.outcome]))
    return bar_chart(title, bars, caption=caption)
