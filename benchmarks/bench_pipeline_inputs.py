"""Compare gristmill, from file to token file, with the reader library alone, for every kind of input file.

The reader library iterates over the texts on one thread and discards them. Its speed is an upper limit for any pipeline
that reads with it on one thread. `bench_pipeline.py --inputs` runs this module.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline_report import Page, compared, megabytes, right_entries, speed, threads, without_figure
from pipelines import documents
from pipelines.contest import OURS, Entry, NoFigure, Run, Setting, Text, as_run, measured, pipeline_entry, run_rounds
from pipelines.inputs import DISTRIBUTIONS, KINDS, make_files
from pipelines.reading import ReadingJob
from tables import markdown_table

FORM = "nanogpt"
READER = "reader"


@dataclass(frozen=True)
class Row:
    """One kind of file: its reader alone, and gristmill for each number of threads."""

    kind: str
    num_bytes: int
    reader: Entry
    ours: list[Entry]


def measure(text: Text, setting: Setting, page: Page, options: argparse.Namespace) -> Sequence[Entry]:
    """Write the files, run readers and gristmill in alternation, show and write the table."""
    num_documents = len(documents(text.path))
    rows = []
    for kind, path in make_files(text.path, setting.scratch, list(KINDS)).items():
        reader = _reader_entry(kind, path, num_documents, setting)
        ours = [_our_entry(kind, Text(path, text.ids), n, setting) for n in options.threads]
        rows.append(Row(kind, path.stat().st_size, reader, ours))
    entries = [entry for row in rows for entry in (row.reader, *row.ours)]
    run_rounds(entries, num_rounds=options.rounds, num_slow_rounds=options.slow_rounds, extra=options.extra)
    _report(rows, entries, num_documents, page, options.threads)
    return entries


def _our_entry(kind: str, text: Text, num_threads: int, setting: Setting) -> Entry:
    entry = pipeline_entry(OURS, FORM, text, num_threads, setting)
    entry.form = kind
    return entry


def _reader_entry(kind: str, path: Path, num_documents: int, setting: Setting) -> Entry:
    def run() -> Run:
        sample = measured("pipelines.reading", asdict(ReadingJob(kind, str(path))), 1, setting)
        if sample.facts["num_documents"] != num_documents:
            raise NoFigure(f"found {sample.facts['num_documents']:,} documents of {num_documents:,}")
        return as_run(sample)

    return Entry(READER, kind, 1, run)


def _report(
    rows: Sequence[Row], entries: Sequence[Entry], num_documents: int, page: Page, num_threads: Sequence[int]
) -> None:
    corpus = page.corpus
    header = ["input", "file MB", "reader library", "alone MB/s", "min–max"]
    for i, number in enumerate(num_threads, 1):
        header += [f"gristmill {number}t MB/s", "min–max" + " " * i, "of reader" + " " * (i - 1), "peak MB" + " " * i]
    parts = [
        markdown_table(header, [_cells(row, corpus.megabytes) for row in rows]),
        f"MB/s: {corpus.megabytes:.1f} MB of text in {num_documents:,} documents, by the median time of "
        f"{max(len(entry.runs) for entry in entries)} runs. The reader library, on one thread, iterates over all "
        f"texts and discards them. gristmill reads, encodes and writes a {FORM} file, fsync included, on as many CPUs "
        "as threads. of reader: its speed relative to the reader's. peak MB: high-water mark of its process, tokenizer "
        "included.",
        without_figure(entries),
        compared([entry for entry in right_entries(entries) if entry.system == OURS]),
    ]
    counts = " and ".join(map(threads, num_threads))
    title = f"Kinds of input: {corpus.name} ({corpus.megabytes:.1f} MB), gpt2, {counts}"
    page.publish(f"pipeline_inputs_{corpus.name}", title, parts, entries, [OURS, *DISTRIBUTIONS])


def _cells(row: Row, text_megabytes: float) -> list[str]:
    cells = [row.kind, f"{row.num_bytes / 1e6:.1f}", KINDS[row.kind].reader, *_speed(row.reader, text_megabytes)]
    for entry in row.ours:
        both = right_entries([entry, row.reader])
        ratio = f"{speed(entry, 1) / speed(row.reader, 1):.0%}" if len(both) == 2 else "–"
        peak = max((run.peak_rss_bytes for run in entry.runs), default=None)
        cells += [*_speed(entry, text_megabytes), ratio, megabytes(peak)]
    return cells


def _speed(entry: Entry, text_megabytes: float) -> tuple[str, str]:
    if not right_entries([entry]):
        return "–", "–"
    each = [text_megabytes / seconds for seconds in entry.seconds]
    return f"{speed(entry, text_megabytes):.0f}", f"{min(each):.0f}–{max(each):.0f}"
