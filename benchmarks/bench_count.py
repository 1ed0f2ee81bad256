"""Measure counting: MB/s from a file to the finished word table, in fresh processes with empty tables.

    python benchmarks/bench_count.py                          English, 1 and 2 threads, 5 rounds
    python benchmarks/bench_count.py --corpus code --threads 1,2,4
    python benchmarks/bench_count.py --quick                  5 MB sample corpus, one round, nothing written

The file is in the page cache. The timed region is from creating the Counter to the joined table, without imports. All
thread counts must give the same words. A run with several threads and CPU/wall below 1.3, or with other busy processes,
is repeated, up to --extra times.
"""

import argparse
import hashlib
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from gristmill import _core
from gristmill.bench import corpora
from gristmill.bench.fresh_process import Sample, measure
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, middle_and_spread, write_result
from results_folder import RESULTS

LEAST_CPU_PER_WALL = 1.3
HEADER = ["threads", "runs", "median MB/s", "min–max", "median ms", "CPU/wall", "peak MB", "words"]


@dataclass(frozen=True)
class CountJob:
    """One file, one pattern."""

    path: str
    pattern: str
    num_threads: int


JOB = CountJob


@dataclass
class Entry:
    """One number of threads and its runs; disturbed runs that were repeated are kept separately."""

    num_threads: int
    runs: list[Sample] = field(default_factory=list)
    repeated: list[Sample] = field(default_factory=list)


def run(job: CountJob) -> Any:
    """Count the pieces of the file, in the measured process."""
    counter = _core.Counter(pattern=job.pattern, special_tokens=[b"<|endoftext|>"], num_threads=job.num_threads)
    counter.add_files([job.path])
    return counter.finish()


def describe(result: Any) -> dict[str, object]:
    """Return the number of words, a digest of the table, and the statistics of the core."""
    table, stats = result
    digest = hashlib.sha256()
    for array in (table.data, table.offsets, table.counts, table.firsts):
        digest.update(memoryview(array).cast("B"))
    return {"num_words": len(table), "digest": digest.hexdigest(), "stats": stats}


def main() -> int:
    """Measure, compare, show, write."""
    options = _options()
    corpus = corpora.resolve(options.corpus)
    corpus.distinct_byte_values()  # reads the file into the page cache
    entries = [Entry(num_threads) for num_threads in options.threads]
    for _ in range(options.rounds):
        for entry in entries:
            _run_once(entry, corpus, options)
    if len({run.facts["digest"] for entry in entries for run in entry.runs + entry.repeated}) > 1:
        print("WORD TABLES DIFFER between runs, no time is reported", file=sys.stderr)
        return 1
    _report(entries, corpus, options)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="english", help=f"{' | '.join(corpora.NAMES)} | PATH (default: english)")
    parser.add_argument("--pattern", default="gpt2", help="a native pattern (default: gpt2)")
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2], help="default: 1,2")
    parser.add_argument("--rounds", type=int, default=5, help="runs per number of threads (default: 5)")
    parser.add_argument("--extra", type=int, default=5, help="how many disturbed runs to repeat (default: 5)")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder for the tables (default: the committed one)"
    )
    parser.add_argument("--quick", action="store_true", help="5 MB sample corpus, one round, no files")
    options = parser.parse_args()
    if options.quick:
        options.corpus, options.rounds, options.extra = "sample:5MB", 1, 0
    return options


def _run_once(entry: Entry, corpus: corpora.Corpus, options: argparse.Namespace) -> None:
    job = CountJob(str(corpus.path), options.pattern, entry.num_threads)
    while True:
        sample = measure("bench_count", asdict(job), num_threads=entry.num_threads)
        starved = entry.num_threads > 1 and sample.cpu_per_wall <= LEAST_CPU_PER_WALL
        if len(entry.repeated) >= options.extra or (sample.quiet and not starved):
            entry.runs.append(sample)
            return
        entry.repeated.append(sample)


def _report(entries: list[Entry], corpus: corpora.Corpus, options: argparse.Namespace) -> None:
    title = f"Counting: {corpus.name} ({corpus.megabytes:.1f} MB), pattern {options.pattern}"
    rows = [_row(entry, corpus) for entry in entries]
    body = markdown_table(HEADER, rows)
    if any("†" in row[0] for row in rows):
        body += "\n\n† CPU/wall at most 1.3, or other processes were busy: not a quiet figure."
    print(f"{title}\n\n{body}")
    if not options.quick:
        about = {"corpus": corpus.what} | describe_run(["gristmill"])
        data = {"entries": [asdict(entry) for entry in entries]}
        name = f"count_{corpus.name}_{options.pattern}"
        write_result(name, title=title, about=about, body=body, data=data, folder=options.output)


def _row(entry: Entry, corpus: corpora.Corpus) -> list[str]:
    middle, spread = middle_and_spread([corpus.megabytes / run.seconds for run in entry.runs], digits=0)
    cpu_per_wall = median(run.cpu_per_wall for run in entry.runs)
    starved = entry.num_threads > 1 and cpu_per_wall <= LEAST_CPU_PER_WALL
    mark = "" if not starved and all(run.quiet for run in entry.runs) else "†"
    return [
        f"{entry.num_threads}{mark}",
        str(len(entry.runs)),
        middle,
        spread,
        f"{1000 * median(run.seconds for run in entry.runs):.0f}",
        f"{cpu_per_wall:.2f}",
        f"{median(run.peak_rss_bytes for run in entry.runs) / 1e6:.0f}",
        f"{entry.runs[0].facts['num_words']:,}",
    ]


if __name__ == "__main__":
    sys.exit(main())
