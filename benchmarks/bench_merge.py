"""Measure on how many threads, and where, batched rounds of merges are faster than the sequential loop.

    python benchmarks/bench_merge.py                              english, multilingual, large; 1, 2, 4, … threads
    python benchmarks/bench_merge.py --corpora english --threads 1,2 --repeats 3

Each number is the minimum of --repeats runs in one process. If the merges of thread counts or loops differ, nothing is
printed. `gristmill bench scaling` measures counting, training and encoding as a user calls them.
"""

import argparse
import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from gristmill import _core
from gristmill.bench import corpora
from gristmill.bench.machine import describe_run
from gristmill.bench.scaling import thread_counts
from gristmill.bench.tables import markdown_table, write_result
from results_folder import RESULTS

Result = TypeVar("Result")
HEADER = ["corpus", "loop", "threads", "setup ms", "loop ms", "rounds", "symbols"]


@dataclass(frozen=True)
class Row:
    """One measured row."""

    corpus: str
    loop: str
    num_threads: int
    seconds: float
    stats: dict[str, float]


def least(repeats: int, work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the shortest time of several runs, and the result."""
    best: tuple[float, Result] | None = None
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - start
        if best is None or seconds < best[0]:
            best = seconds, result
    assert best is not None
    return best


def count(path: Path) -> _core.WordTable:
    """Return the words of a file."""
    counter = _core.Counter(pattern="gpt2", special_tokens=[b"<|endoftext|>"], num_threads=thread_counts()[-1])
    counter.add_files([str(path)])
    return counter.finish()[0]


def measure_corpus(name: str, threads: list[int], vocab_size: int, repeats: int) -> tuple[list[Row], list[list[str]]]:
    """Return the rows of one corpus, and their cells."""
    words = count(corpora.resolve(name).path)
    rows: list[Row] = []
    lines: list[list[str]] = []
    digests: set[str] = set()
    for loop in ("sequential", "rounds"):
        for num_threads in threads:
            seconds, run = least(
                repeats,
                lambda loop=loop, n=num_threads: _core.learn_merges(  # type: ignore[misc]
                    words, num_merges=vocab_size - 257, tie_break="huggingface", loop=loop, num_threads=n
                ),
            )
            digests.add(hashlib.sha256(run.merges.tobytes()).hexdigest())
            if len(digests) > 1:
                sys.exit(f"merging {name}: results differ between thread counts or loops, so no time is reported.")
            stats = run.stats
            rows.append(Row(name, loop, num_threads, seconds, stats))
            milliseconds = [f"{stats[key] * 1e3:.0f}" for key in ("setup_seconds", "loop_seconds")]
            lines.append(
                [name, loop, str(num_threads), *milliseconds, f"{stats['num_rounds']:,}", f"{stats['num_symbols']:,}"]
            )
    return rows, lines


def main() -> None:
    """Parse the options, measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", default="english,multilingual,large", help="default: %(default)s")
    parser.add_argument("--threads", default=",".join(map(str, thread_counts())), help="default here: %(default)s")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the table")
    parser.add_argument("--quick", action="store_true", help="1 MB of the sample corpus, one run, no files")
    options = parser.parse_args()
    if options.quick:
        options.corpora, options.vocab_size, options.repeats = "sample:1MB", 2000, 1
    threads = [int(part) for part in options.threads.split(",")]
    rows: list[Row] = []
    lines: list[list[str]] = []
    for name in options.corpora.split(","):
        measured, cells = measure_corpus(name, threads, options.vocab_size, options.repeats)
        rows += measured
        lines += cells
    table = markdown_table(HEADER, lines)
    print(table)
    if not options.quick:
        write_result(
            f"merge_{max(threads)}t",
            title=f"Merge loops, vocabulary {options.vocab_size:,}, least of {options.repeats} runs",
            about=describe_run(["gristmill"]),
            body=table,
            data={"rows": [asdict(row) for row in rows]},
            folder=options.output,
        )


if __name__ == "__main__":
    main()
