"""Measure time, CPU time and memory from a text file to a uint16 token file, for gristmill and other systems.

Every run is a fresh process, limited to as many CPUs as threads. The systems run in alternation, round by round. Every
token file is compared with the ids of tiktoken before its time is used. A system with other ids is listed without a
result. Tables are written to benchmarks/results/ as Markdown and, with every single run, as JSON.

    python benchmarks/bench_pipeline.py                          English, 1 and 2 threads, all systems
    python benchmarks/bench_pipeline.py --fsync                  files of all systems must be on disk
    python benchmarks/bench_pipeline.py --systems gristmill,gigatoken:encode_files --rounds 9
    python benchmarks/bench_pipeline.py --inputs                 .txt, .jsonl, .parquet, … against reader libraries
    python benchmarks/bench_pipeline.py --memory                 memory for 1, 5 and 20 times the text
    python benchmarks/bench_pipeline.py --quick                  a smoke test of a few seconds that writes nothing

A run during which other processes used more than a tenth of a CPU is repeated, up to --extra times per entry. A run
that waits for the disk is not repeated: this wait is part of the pipeline.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import corpora
import pipeline_memory
import pipeline_report
import slices
from gristmill.bench.pipeline_report import Page
from gristmill.bench.pipelines import SYSTEMS
from gristmill.bench.pipelines.contest import (
    OURS,
    Entry,
    Setting,
    Text,
    find_entries,
    find_pipelines,
    measure_memory,
    run_rounds,
)
from gristmill.bench.pipelines.reference import reference_ids
from gristmill.bench.tables import RESULTS


def main() -> int:
    """Measure, compare, show and write, for every requested corpus."""
    options = _options()
    corpora.CACHE.mkdir(parents=True, exist_ok=True)
    return max(_measure(slices.resolve(name), options) for name in options.corpus)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=_names, default=["english"], help=f"{','.join(corpora.NAMES)} | NAME:5MB | PATH")
    add("--threads", type=_numbers, default=[1, 2], help="threads or processes of every system (default: 1,2)")
    add("--systems", type=_names, help="NAME or NAME:FORM, of " + ",".join(SYSTEMS))
    add("--rounds", type=int, default=5, help="runs per form (default: 5)")
    add("--slow-rounds", type=int, default=3, help="runs of tokenizers and tiktoken, and for --memory (default: 3)")
    add("--extra", type=int, default=5, help="how many disturbed runs to repeat per form (default: 5)")
    add("--timeout", type=float, default=900, help="time limit of one run in seconds (default: 900)")
    add("--fsync", action="store_true", help="token files of all systems must be on disk when the clock stops")
    add("--inputs", action="store_true", help="gristmill on every kind of input, against the reader library only")
    add("--memory", action="store_true", help="memory of gristmill and gigatoken for texts of increasing length")
    add("--times", type=_numbers, default=[1, 5, 20], help="with --memory: lengths of the text (default: 1,5,20)")
    add("--scratch", type=Path, default=corpora.CACHE, help="folder for the token files (default: data/benchmarks)")
    add("--output", type=Path, default=RESULTS, help="folder for the tables (default: the committed one)")
    add("--quick", action="store_true", help="1 MB of the sample corpus, one round, no files")
    options = parser.parse_args()
    options.systems = options.systems or list(pipeline_memory.SYSTEMS if options.memory else SYSTEMS)
    if unknown := {name.partition(":")[0] for name in options.systems} - set(SYSTEMS):
        parser.error(f"unknown system {', '.join(sorted(unknown))}. Known: {', '.join(SYSTEMS)}.")
    if options.quick:
        options.corpus, options.rounds, options.slow_rounds, options.extra = ["quick:1MB"], 1, 1, 0
    return options


def _names(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _measure(corpus: corpora.Corpus, options: argparse.Namespace) -> int:
    ids = reference_ids(corpus.path)
    measure = _inputs if options.inputs else pipeline_memory.measure if options.memory else _systems
    with tempfile.TemporaryDirectory(prefix="pipeline_", dir=options.scratch) as folder:
        setting = Setting(Path(folder), options.fsync, options.timeout)
        page = Page(corpus, Path(folder), None if options.quick else options.output)
        entries = measure(Text(corpus.path, ids), setting, page, options)
    wrong = [entry for entry in entries if entry.system == OURS and entry.problem]
    for entry in wrong:
        print(f"{entry.system}, {entry.form}: {entry.problem}", file=sys.stderr)
    return 1 if wrong else 0


def _systems(text: Text, setting: Setting, page: Page, options: argparse.Namespace) -> Sequence[Entry]:
    """From text to token file, for each number of threads."""
    pipelines, missing = find_pipelines(options.systems)
    all_entries: list[Entry] = []
    for num_threads in options.threads:
        entries = find_entries(options.systems, pipelines, text, num_threads, setting)
        run_rounds(entries, num_rounds=options.rounds, num_slow_rounds=options.slow_rounds, extra=options.extra)
        for entry in entries:
            if entry.problem is None:
                measure_memory(entry)
        pipeline_report.report_systems(entries, pipelines, missing, page, fsync=setting.fsync)
        all_entries += entries
    return all_entries


def _inputs(text: Text, setting: Setting, page: Page, options: argparse.Namespace) -> Sequence[Entry]:
    """Compare kinds of input. Imports the reader libraries, which nothing else needs."""
    try:
        import pipeline_inputs
    except ImportError as error:
        raise SystemExit(f"--inputs needs the reader libraries: {error}. pip install '.[bench,data]'") from error
    return pipeline_inputs.measure(text, setting, page, options)


if __name__ == "__main__":
    sys.exit(main())
