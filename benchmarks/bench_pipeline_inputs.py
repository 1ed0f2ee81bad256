"""Compare gristmill, from file to token file, with the reader library alone, for every kind of input file.

    python benchmarks/bench_pipeline_inputs.py                   .txt, .jsonl, .parquet, …, 1 and 2 threads
    python benchmarks/bench_pipeline_inputs.py --quick           a smoke test of a few seconds that writes nothing

The reader library iterates over the texts on one thread and discards them. Its speed is an upper limit for any pipeline
that reads with it on one thread. Needs the reader libraries: pip install '.[bench,data]'.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

from gristmill.bench import corpora
from gristmill.bench.adapters import Adapter, find_adapters
from gristmill.bench.contest import OURS, Entry, Rounds, run_rounds
from gristmill.bench.encoders import vocabularies
from gristmill.bench.fresh_process import ChildFailed, Sample, measure
from gristmill.bench.machine import describe_run
from gristmill.bench.pages import plural
from gristmill.bench.pipeline import PACKAGE, Conditions, Text, expected_text, pipeline_entry, timed_region
from gristmill.bench.pipeline_report import file_system, megabytes
from gristmill.bench.pipelines import SYSTEMS, documents
from gristmill.bench.tables import markdown_table, write_result
from input_kinds import DISTRIBUTIONS, KINDS, make_files
from reading import ReadingJob
from results_folder import RESULTS

FORM = "nanogpt"
READER = "reader"


@dataclass(frozen=True)
class Row:
    """One kind of file: its reader alone, and gristmill for each number of threads."""

    kind: str
    num_bytes: int
    reader: Entry
    ours: list[Entry]


def main() -> int:
    """Write the files, run readers and gristmill in alternation, show and write the table."""
    options = _options()
    corpus = corpora.resolve(options.corpus)
    rounds = Rounds(options.rounds, options.rounds, options.extra, options.timeout)
    (ours,) = find_adapters([OURS], package=PACKAGE, known=SYSTEMS)
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        files = vocabularies.prepare(
            options.vocabulary, Path(folder), corpus=corpus.path, vocab_size=options.vocab_size
        )
        conditions = Conditions(Path(folder), files, False, options.timeout)
        text = expected_text(corpus.path, conditions)
        rows = _rows(text, ours, conditions, options.threads)
        entries = [entry for row in rows for entry in (row.reader, *row.ours)]
        interruption = run_rounds(entries, rounds)
        if interruption is not None:
            raise interruption
        _report(rows, entries, corpus, text, file_system(Path(folder)), options)
    return 1 if any(entry.is_ours and entry.problem for entry in entries) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", default="english", help=f"{','.join(corpora.NAMES)} | NAME:5MB | PATH (default: english)")
    add("--vocabulary", choices=("trained", "gpt2"), default="gpt2")
    add("--vocab-size", type=int, default=32_000, help="of the trained vocabulary (default: 32000)")
    add("--threads", type=int, nargs="+", default=[1, 2], help="of gristmill (default: 1 2)")
    add("--rounds", type=int, default=5, help="runs per kind (default: 5)")
    add("--extra", type=int, default=5, help="how many disturbed runs to repeat (default: 5)")
    add("--timeout", type=float, default=900, help="time limit of one run in seconds (default: 900)")
    add("--scratch", type=Path, help="folder for the files (default: the system's folder for temporary files)")
    add("--output", type=Path, default=RESULTS, help="folder for the tables (default: the committed one)")
    add("--quick", action="store_true", help="1 MB of the sample corpus, one round, no files")
    options = parser.parse_args()
    if options.quick:
        options.corpus, options.vocabulary, options.vocab_size = "sample:1MB", "trained", 2000
        options.rounds, options.extra = 1, 0
    return options


def _rows(text: Text, ours: Adapter, conditions: Conditions, num_threads: Sequence[int]) -> list[Row]:
    num_documents = len(documents(text.path))
    rows = []
    for kind, path in make_files(text.path, conditions.scratch, list(KINDS)).items():
        reader = Entry(READER, kind, 1, partial(_read, kind, path, num_documents, conditions))
        own = [pipeline_entry(ours, FORM, Text(path, text.ids), number, conditions) for number in num_threads]
        for entry in own:
            entry.form = kind
        rows.append(Row(kind, path.stat().st_size, reader, own))
    return rows


def _read(kind: str, path: Path, num_documents: int, conditions: Conditions) -> Sample:
    job = asdict(ReadingJob(kind, str(path)))
    sample = timed_region(measure("reading", job, num_threads=1, timeout_seconds=conditions.timeout_seconds))
    if sample.facts["num_documents"] != num_documents:
        raise ChildFailed(f"found {sample.facts['num_documents']:,} documents of {num_documents:,}")
    return sample


def _report(
    rows: Sequence[Row],
    entries: Sequence[Entry],
    corpus: corpora.Corpus,
    text: Text,
    disk: str,
    options: argparse.Namespace,
) -> None:
    num_documents = len(documents(text.path))
    header = ["input", "file MB", "reader library", "alone MB/s", "min–max"]
    for i, number in enumerate(options.threads, 1):
        header += [f"gristmill {number}t MB/s", "min–max" + " " * i, "of reader" + " " * (i - 1), "peak MB" + " " * i]
    problems = [f"* {entry.name}: {entry.outcome}." for entry in entries if not entry.is_measured]
    parts = [
        markdown_table(header, [_cells(row, corpus.megabytes) for row in rows]),
        f"MB/s: {corpus.megabytes:.1f} MB of text in {num_documents:,} documents, by the median time of "
        f"{max(len(entry.runs) for entry in entries)} runs. The reader library, on one thread, iterates over all "
        f"texts and discards them. gristmill reads, encodes and writes a {FORM} file, fsync included, on as many CPUs "
        "as threads. of reader: its speed relative to the reader's. peak MB: high-water mark of its process, tokenizer "
        "included.",
        "No figure:\n" + "\n".join(problems) if problems else "",
        f"Token files compared with the ids of {text.source}.",
    ]
    counts = " and ".join(plural(number, "thread") for number in options.threads)
    title = f"Kinds of input: {corpus.name} ({corpus.megabytes:.1f} MB), {options.vocabulary}, {counts}"
    body = "\n\n".join(filter(None, parts))
    print(f"{title}\n\n{body}")
    if not options.quick:
        about = {"corpus": corpus.what, "file system": disk} | describe_run([OURS, *DISTRIBUTIONS])
        data = {"num_bytes": corpus.num_bytes, "entries": [entry.as_data() for entry in entries]}
        name = f"pipeline_inputs_{corpus.name}"
        write_result(name, title=title, about=about, body=body, data=data, folder=options.output)


def _cells(row: Row, text_megabytes: float) -> list[str]:
    cells = [row.kind, f"{row.num_bytes / 1e6:.1f}", KINDS[row.kind].reader, *_speed(row.reader, text_megabytes)]
    for entry in row.ours:
        both = entry.is_measured and row.reader.is_measured
        ratio = f"{median(row.reader.seconds) / median(entry.seconds):.0%}" if both else "–"
        peak = max((run.peak_rss_bytes for run in entry.runs), default=None)
        cells += [*_speed(entry, text_megabytes), ratio, megabytes(peak)]
    return cells


def _speed(entry: Entry, text_megabytes: float) -> tuple[str, str]:
    if not entry.is_measured:
        return "–", "–"
    each = [text_megabytes / seconds for seconds in entry.seconds]
    return f"{median(each):.0f}", f"{min(each):.0f}–{max(each):.0f}"


if __name__ == "__main__":
    sys.exit(main())
