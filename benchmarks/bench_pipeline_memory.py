"""Measure the memory of a pipeline, from text file to token file, for texts of increasing length.

python benchmarks/bench_pipeline_memory.py                   1, 5 and 20 times the text
python benchmarks/bench_pipeline_memory.py --quick           a smoke test of a few seconds that writes nothing
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gristmill.bench import corpora
from gristmill.bench.adapters import Adapter, find_adapters
from gristmill.bench.contest import Entry
from gristmill.bench.encoders import vocabularies
from gristmill.bench.encoders.vocabularies import SPECIAL
from gristmill.bench.machine import describe_run
from gristmill.bench.pages import plural
from gristmill.bench.pipeline import PACKAGE, Conditions, Text, expected_text, find_entries, measure_memory
from gristmill.bench.pipeline_report import explained, file_system, megabytes
from gristmill.bench.pipelines import SYSTEMS
from gristmill.bench.tables import markdown_table, write_result
from results_folder import RESULTS

COMPARED = ["gristmill", "gigatoken:encode_files"]
HEADER = ["system, form", "threads", "text", "text MB", "peak MB", "anonymous MB"]

Row = tuple[int, Entry]  # number of repetitions of the text, and the system


def main() -> int:
    """Write, encode and remove the texts one by one; show and write the table."""
    options = _options()
    corpus = corpora.resolve(options.corpus)
    adapters = find_adapters(options.systems, package=PACKAGE, known=SYSTEMS)
    with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
        files = vocabularies.prepare(
            options.vocabulary, Path(folder), corpus=corpus.path, vocab_size=options.vocab_size
        )
        conditions = Conditions(Path(folder), files, False, options.timeout)
        text = expected_text(corpus.path, conditions)
        rows = _measure(text, adapters, conditions, options)
        _report(rows, adapters, corpus, text, file_system(Path(folder)), options)
    return 1 if any(entry.is_ours and entry.problem for _, entry in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", default="english", help=f"{','.join(corpora.NAMES)} | NAME:5MB | PATH (default: english)")
    add("--vocabulary", choices=("trained", "gpt2"), default="gpt2")
    add("--vocab-size", type=int, default=32_000, help="of the trained vocabulary (default: 32000)")
    add("--systems", nargs="+", default=COMPARED, help=f"NAME or NAME:FORM (default: {' '.join(COMPARED)})")
    add("--threads", type=int, nargs="+", default=[1, 2], help="of every system (default: 1 2)")
    add("--times", type=int, nargs="+", default=[1, 5, 20], help="lengths of the text (default: 1 5 20)")
    add("--rounds", type=int, default=3, help="runs per length (default: 3)")
    add("--timeout", type=float, default=900, help="time limit of one run in seconds (default: 900)")
    add("--scratch", type=Path, help="folder for the files (default: the system's folder for temporary files)")
    add("--output", type=Path, default=RESULTS, help="folder for the tables (default: the committed one)")
    add("--quick", action="store_true", help="1 MB of the sample corpus, one round, no files")
    options = parser.parse_args()
    if options.quick:
        options.corpus, options.vocabulary, options.vocab_size = "sample:1MB", "trained", 2000
        options.times, options.rounds = [1, 2], 1
    return options


def _measure(text: Text, adapters: Sequence[Adapter], conditions: Conditions, options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for times in options.times:
        longer = replace(text, path=_repeated(text.path, conditions.scratch, times), times=times)
        for num_threads in options.threads:
            entries = find_entries(options.systems, adapters, longer, num_threads, conditions)
            rows += [(times, entry) for entry in entries]
            for entry in entries * options.rounds:
                if entry.problem is None:
                    measure_memory(entry)
        longer.path.unlink()
    return rows


def _report(
    rows: Sequence[Row],
    adapters: Sequence[Adapter],
    corpus: corpora.Corpus,
    text: Text,
    disk: str,
    options: argparse.Namespace,
) -> None:
    right = [entry for _, entry in rows if entry.problem is None]
    problems = dict.fromkeys(f"* {entry.name}: {entry.problem}." for _, entry in rows if entry.problem)
    parts = [
        markdown_table(HEADER, _cells(rows, corpus.megabytes)),
        "peak MB: resident set of the process, interpreter, tokenizer and mapped files included, the maximum of "
        f"{options.rounds} runs, sampled every 20 ms. anonymous MB: the same without the contents of mapped "
        f"files. The text is repeated, with `{SPECIAL}` between the copies.",
        "No figure:\n" + "\n".join(problems) if problems else "",
        f"Token files compared with the ids of {text.source}.",
        explained(right, adapters),
    ]
    counts = " and ".join(plural(number, "thread") for number in options.threads)
    size = f"{corpus.name} ({corpus.megabytes:.1f} MB)"
    title = f"Memory from text file to uint16 file: {size}, repeated, {options.vocabulary}, {counts}"
    body = "\n\n".join(filter(None, parts))
    print(f"{title}\n\n{body}")
    if not options.quick:
        about = {"corpus": corpus.what, "file system": disk}
        about |= describe_run(adapter.distribution for adapter in adapters)
        entries = [{"times": times, **entry.as_data()} for times, entry in rows]
        data = {"num_bytes": corpus.num_bytes, "entries": entries}
        name = f"pipeline_memory_{corpus.name}"
        write_result(name, title=title, about=about, body=body, data=data, folder=options.output)


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
            entry.name,
            str(entry.num_threads),
            f"{times}x",
            f"{times * text_megabytes:,.0f}",
            megabytes(entry.memory["peak_bytes"]),
            megabytes(entry.memory["peak_anonymous_bytes"]),
        ]
        for times, entry in right
    ]


if __name__ == "__main__":
    sys.exit(main())
