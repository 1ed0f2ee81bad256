"""Measure the memory of a pipeline for texts of increasing length. `bench_pipeline.py --memory` runs this module."""

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from encoders.vocabularies import SPECIAL
from pipeline_report import Page, compared, explained, megabytes, threads, without_figure
from pipelines.contest import Entry, Setting, Text, find_entries, find_pipelines, measure_memory
from tables import markdown_table

SYSTEMS = ("gristmill", "gigatoken:encode_files")
HEADER = ["system, form", "threads", "text", "text MB", "peak MB", "anonymous MB"]

Row = tuple[int, Entry]  # number of repetitions of the text, and the system


def measure(text: Text, setting: Setting, page: Page, options: argparse.Namespace) -> Sequence[Entry]:
    """Write, encode and remove the texts one by one; show and write the table."""
    pipelines, missing = find_pipelines(options.systems)
    rows: list[Row] = []
    for times in options.times:
        longer = replace(text, path=_repeated(text.path, setting.scratch, times), times=times)
        for num_threads in options.threads:
            entries = find_entries(options.systems, pipelines, longer, num_threads, setting)
            rows += [(times, entry) for entry in entries]
            for entry in entries * options.slow_rounds:
                if entry.problem is None:
                    measure_memory(entry)
        longer.path.unlink()
    entries = [entry for _, entry in rows]
    right = [entry for entry in entries if entry.problem is None]
    parts = [
        markdown_table(HEADER, _cells(rows, page.corpus.megabytes)),
        "peak MB: resident set of the process, interpreter, tokenizer and mapped files included, the maximum of "
        f"{options.slow_rounds} runs, sampled every 20 ms. anonymous MB: the same without the contents of mapped "
        f"files. The text is repeated, with `{SPECIAL}` between the copies.",
        without_figure(entries),
        f"Not installed, skipped: {', '.join(missing)}." if missing else "",
        compared(right),
        explained(right, pipelines),
    ]
    corpus = page.corpus
    counts = " and ".join(map(threads, options.threads))
    title = f"Memory from text file to uint16 file: {corpus.name} ({corpus.megabytes:.1f} MB), repeated, gpt2, {counts}"
    distributions = [pipeline.DISTRIBUTION for pipeline in pipelines.values()]
    page.publish(f"pipeline_memory_{corpus.name}", title, parts, entries, distributions, times=[n for n, _ in rows])
    return entries


def _repeated(path: Path, folder: Path, times: int) -> Path:
    """Write the text several times, with separators between if missing, so that the ids are repeated too."""
    target = folder / f"{times}x.txt"
    ends_a_document = path.read_bytes().endswith(SPECIAL.encode())
    with target.open("wb") as out:
        for number in range(times):
            if number and not ends_a_document:
                out.write(SPECIAL.encode())
            with path.open("rb") as file:
                shutil.copyfileobj(file, out, 1 << 20)
    return target


def _cells(rows: Sequence[Row], text_megabytes: float) -> list[list[str]]:
    """Return the rows by system, so that its growth is visible."""
    in_order = list(dict.fromkeys((entry.system, entry.form) for _, entry in rows))
    right = [row for row in rows if row[1].problem is None]
    right.sort(key=lambda row: (in_order.index((row[1].system, row[1].form)), row[1].num_threads, row[0]))
    return [
        [
            f"{entry.system}, {entry.form}",
            str(entry.num_threads),
            f"{times}x",
            f"{times * text_megabytes:,.0f}",
            megabytes(entry.memory["peak_bytes"]),
            megabytes(entry.memory["peak_anonymous_bytes"]),
        ]
        for times, entry in right
    ]
