"""Measure how counting and merging scale with threads, and where batched rounds are faster than the sequential loop.

    python benchmarks/bench_scaling.py                              english, multilingual, large; 1, 2, 4, … threads
    python benchmarks/bench_scaling.py --corpora english --threads 1,2 --repeats 3

Each number is the minimum of --repeats runs in one process, with files in the page cache. If the words or merges of
thread counts or loops differ, nothing is printed.
"""

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import corpora
from gristmill import _core
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import RESULTS, markdown_table, write_result

Result = TypeVar("Result")
COUNT_HEADER = ["corpus", "threads", "MB/s", "count ms", "join ms", "words"]
MERGE_HEADER = ["corpus", "loop", "threads", "setup ms", "loop ms", "rounds", "symbols"]


@dataclass(frozen=True)
class Row:
    """One measured row of either table."""

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


def count(path: Path, num_threads: int) -> tuple[_core.WordTable, dict[str, float]]:
    """Return the words of a file, with the statistics of the core."""
    counter = _core.Counter(pattern="gpt2", special_tokens=[b"<|endoftext|>"], num_threads=num_threads)
    counter.add_files([str(path)])
    return counter.finish()


def must_agree(digests: set[str], data: bytes, what: str) -> None:
    """Exit if this result differs from the previous one."""
    digests.add(hashlib.sha256(data).hexdigest())
    if len(digests) > 1:
        sys.exit(f"{what}: results differ between thread counts or loops, so no time is reported.")


def measure_corpus(
    name: str, threads: list[int], vocab_size: int, repeats: int
) -> tuple[list[Row], list[Row], list[list[str]], list[list[str]]]:
    """Return both tables of one corpus."""
    corpus = corpora.resolve(name)
    num_bytes = corpus.path.stat().st_size
    counts: list[Row] = []
    merges: list[Row] = []
    count_lines: list[list[str]] = []
    merge_lines: list[list[str]] = []
    same_words: set[str] = set()
    same_merges: set[str] = set()
    for num_threads in threads:
        seconds, (words, stats) = least(repeats, lambda n=num_threads: count(corpus.path, n))  # type: ignore[misc]
        must_agree(same_words, words.data.tobytes() + words.counts.tobytes(), f"counting {name}")
        counts.append(Row(name, "count", num_threads, seconds, stats))
        milliseconds = [f"{stats[key] * 1e3:.0f}" for key in ("count_seconds", "join_seconds")]
        count_lines.append(
            [name, str(num_threads), f"{num_bytes / seconds / 1e6:,.0f}", *milliseconds, f"{len(words):,}"]
        )
    for loop in ("sequential", "rounds"):
        for num_threads in threads:
            seconds, run = least(
                repeats,
                lambda loop=loop, n=num_threads: _core.learn_merges(  # type: ignore[misc]
                    words, num_merges=vocab_size - 257, tie_break="huggingface", loop=loop, num_threads=n
                ),
            )
            must_agree(same_merges, run.merges.tobytes(), f"merging {name}")
            stats = run.stats
            merges.append(Row(name, loop, num_threads, seconds, stats))
            milliseconds = [f"{stats[key] * 1e3:.0f}" for key in ("setup_seconds", "loop_seconds")]
            merge_lines.append(
                [name, loop, str(num_threads), *milliseconds, f"{stats['num_rounds']:,}", f"{stats['num_symbols']:,}"]
            )
    return counts, merges, count_lines, merge_lines


def main() -> None:
    """Parse the options, measure, print and write the tables."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    powers = [1 << i for i in range(cores.bit_length()) if 1 << i <= cores]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", default="english,multilingual,large", help="default: %(default)s")
    parser.add_argument("--threads", default=",".join(map(str, powers)), help="default here: %(default)s")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the tables")
    options = parser.parse_args()
    threads = [int(part) for part in options.threads.split(",")]
    rows: list[Row] = []
    count_lines: list[list[str]] = []
    merge_lines: list[list[str]] = []
    for name in options.corpora.split(","):
        counted, merged, more_counts, more_merges = measure_corpus(name, threads, options.vocab_size, options.repeats)
        rows += counted + merged
        count_lines += more_counts
        merge_lines += more_merges
        print(
            markdown_table(COUNT_HEADER, more_counts), markdown_table(MERGE_HEADER, more_merges), sep="\n\n", flush=True
        )
    page = write_result(
        f"scaling_{max(threads)}t",
        title=f"Scaling with threads, vocabulary {options.vocab_size:,}, least of {options.repeats} runs",
        about=describe_run(["gristmill"]),
        body=f"{markdown_table(COUNT_HEADER, count_lines)}\n\n{markdown_table(MERGE_HEADER, merge_lines)}",
        data={"rows": [asdict(row) for row in rows]},
        folder=options.output,
    )
    print(f"written: {page.name}")


if __name__ == "__main__":
    main()
