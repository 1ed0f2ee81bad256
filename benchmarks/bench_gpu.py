"""Measure counting, merging and training on a GPU beside the CPU: the bars of docs/gpu.md. Needs a GPU.

    python benchmarks/bench_gpu.py                                  every part; texts of 1.9 and 11.9 GB
    python benchmarks/bench_gpu.py --parts merge --words 1560000    merging 1.56 million words
    python benchmarks/bench_gpu.py --quick                          a smoke test with a small text

Texts are drawn from the words of --corpus (`drawn_text.py`) and read once before they are measured. CPU and GPU take
turns in one process, and their merges are compared. `cold` starts a new Python process per run.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import gristmill as gm
from drawn_text import read_into_page_cache, recombined_words, write_drawn_text
from gristmill import _core
from gristmill.bench import corpora
from gristmill.bench.machine import describe_run, num_cores, version
from gristmill.bench.tables import markdown_table, middle_and_spread, write_result
from gristmill.gpu import devices
from gristmill.gpu.counting import DeviceTable, GpuCounter
from gristmill.gpu.driver import Driver
from gristmill.gpu.merge_run import MergeTask
from gristmill.gpu.merging import learn_merges_on
from gristmill.gpu.words import upload_words
from results_folder import RESULTS

DEVICE = "cuda:0"
PARTS = ("merge", "count", "train", "cold")
SPECIALS = [b"<|endoftext|>"]
HEADER = ["what", "device", "median s", "min–max", "GB/s", "times as fast"]
COLD = """
import hashlib, sys, time
began = time.perf_counter()
import gristmill as gm
tokenizer = gm.train_tokenizer(sys.argv[1], vocab_size=int(sys.argv[2]), device=sys.argv[3], progress=None)
print(time.perf_counter() - began, hashlib.sha256(tokenizer.merge_ids.tobytes()).hexdigest())
"""


class Run(NamedTuple):
    """One way to do the work."""

    device: str
    work: Callable[[], Any]  # returns what must be equal


class Timed(NamedTuple):
    """The times of one way, in the order of the runs."""

    what: str
    device: str
    seconds: list[float]
    num_bytes: int  # 0 if a rate makes no sense


def measure(what: str, runs: list[Run], *, rounds: int, num_bytes: int = 0) -> list[Timed]:
    """Return the times of each run, measured in turns after a first turn that is not measured.

    Exits if their results differ.
    """
    results = [run.work() for run in runs]
    for run, result in zip(runs, results, strict=True):
        if result != results[0]:
            sys.exit(f"{what}: the results of {runs[0].device} and {run.device} differ, so no time is reported.")
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, times in zip(runs, seconds, strict=True):
            began = time.perf_counter()
            result = run.work()
            times.append(time.perf_counter() - began)
            if result != results[0]:
                sys.exit(f"{what}: {run.device} has given two different results.")
    return [Timed(what, run.device, times, num_bytes) for run, times in zip(runs, seconds, strict=True)]


def measure_merging(driver: Driver, words: gm.Words, options: argparse.Namespace) -> list[Timed]:
    """Measure the merge stage: one thread of the CPU, all of them, and the GPU, the upload of the words included."""
    num_merges = options.vocab_size - 257
    table = words.table

    def on_cpu(num_threads: int, loop: str) -> bytes:
        run = _core.learn_merges(
            table, num_merges=num_merges, tie_break="greatest-bytes", num_threads=num_threads, loop=loop
        )
        return run.merges.tobytes()

    def on_gpu() -> bytes:
        with driver.active():
            task = MergeTask(num_merges, "greatest-bytes", num_threads=num_cores())
            learned = learn_merges_on(driver, upload_words(driver, table), task, to_host=lambda: table)
        if learned.reason:
            sys.exit(f"the CPU learned the merges: {learned.reason}.")
        return learned.merges.tobytes()

    runs = [
        Run("CPU, 1 thread", lambda: on_cpu(1, "sequential")),
        Run(f"CPU, {num_cores()} threads", lambda: on_cpu(num_cores(), "automatic")),
        Run("GPU", on_gpu),
    ]
    symbols = int(table.offsets[-1])
    return measure(f"merge {len(words):,} words, {symbols / 1e6:.0f}M symbols", runs, rounds=options.rounds)


def measure_counting(driver: Driver, text: Path, options: argparse.Namespace) -> list[Timed]:
    """Measure the count stage from the page cache to a table, in the memory of the GPU or of the host."""

    def count_on_gpu() -> DeviceTable:
        with driver.active():
            counter = GpuCounter(
                [driver], pattern="gpt2", special_tokens=SPECIALS, num_threads=min(options.readers, num_cores())
            )
            counter.add_files([text])
            return counter.finish()[0]

    def count_on_cpu() -> _core.WordTable:
        counter = _core.Counter(pattern="gpt2", special_tokens=SPECIALS, num_threads=num_cores())
        counter.add_files([text])
        return counter.finish()[0]

    on_gpu, on_cpu = count_on_gpu().to_host(), count_on_cpu()
    if not all(np.array_equal(getattr(on_gpu, part), getattr(on_cpu, part)) for part in ("data", "counts", "firsts")):
        sys.exit(f"count {_size(text)}: CPU and GPU count different words, so no time is reported.")
    del on_gpu, on_cpu
    runs = [Run(f"CPU, {num_cores()} threads", lambda: len(count_on_cpu())), Run("GPU", lambda: len(count_on_gpu()))]
    return measure(f"count {_size(text)}", runs, rounds=options.rounds, num_bytes=text.stat().st_size)


def measure_training(text: Path, options: argparse.Namespace) -> list[Timed]:
    """Measure `train_tokenizer` from the page cache."""

    def train(device: str) -> bytes:
        tokenizer = gm.train_tokenizer(text, vocab_size=options.vocab_size, device=device, progress=None)
        return tokenizer.merge_ids.tobytes()

    runs = [Run(f"CPU, {num_cores()} threads", lambda: train("cpu")), Run("GPU", lambda: train(DEVICE))]
    return measure(f"train {_size(text)}", runs, rounds=options.rounds, num_bytes=text.stat().st_size)


def measure_cold(text: Path, options: argparse.Namespace) -> list[Timed]:
    """Measure `import gristmill` and `train_tokenizer` in new processes."""

    def train(device: str) -> float:
        command = [sys.executable, "-c", COLD, str(text), str(options.vocab_size), device]
        taken, digest = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        digests.add(digest)
        if len(digests) > 1:
            sys.exit(f"{what}: the merges of CPU and GPU differ, so no time is reported.")
        return float(taken)

    what = f"new process, train {_size(text)}"
    digests: set[str] = set()
    seconds: dict[str, list[float]] = {"cpu": [], DEVICE: []}
    for device in seconds:
        train(device)  # compiles the kernels
    for _ in range(options.rounds):
        for device, times in seconds.items():
            times.append(train(device))
    names = {"cpu": f"CPU, {num_cores()} threads", DEVICE: "GPU"}
    return [Timed(what, names[device], times, text.stat().st_size) for device, times in seconds.items()]


def _size(text: Path) -> str:
    return f"{text.stat().st_size / 1e9:.3g} GB"


def table_of(timed: list[Timed]) -> str:
    """Return the Markdown table; the first row of each measurement is what the others are compared with."""
    rows, first = [], timed[0]
    for each in timed:
        first = first if each.what == first.what else each
        middle, spread = middle_and_spread(each.seconds, digits=3)
        rate = f"{each.num_bytes / 1e9 / float(middle):.1f}" if each.num_bytes and float(middle) else ""
        base = float(middle_and_spread(first.seconds, digits=6)[0])
        times = "" if each is first else f"{base / float(middle_and_spread(each.seconds, digits=6)[0]):.1f}"
        rows.append([each.what, each.device, middle, spread, rate, times])
    return markdown_table(HEADER, rows)


@contextlib.contextmanager
def drawn_texts(words: gm.Words, sizes: list[float], folder: Path) -> Iterator[list[Path]]:
    """Make the texts, and remove them at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = []
    try:
        for size in sizes:
            texts.append(folder / f"drawn-{size:g}GB.txt")
            write_drawn_text(words, texts[-1], int(size * 1e9))
            read_into_page_cache(texts[-1])
        yield texts
    finally:
        for text in texts:
            text.unlink(missing_ok=True)


def about_run() -> dict[str, str]:
    """Return machine, GPU, versions, commit, date and command."""
    driver = devices.gpus.open(0)
    cupy = next((f"{name} {version(name)}" for name in ("cupy-cuda13x", "cupy-cuda12x") if version(name) != "-"), "")
    about = {"GPU": driver.name, "multiprocessors": str(driver.num_multiprocessors), "CuPy": cupy}
    return about | describe_run(["gristmill", "numpy"])


def main() -> None:
    """Parse the options, measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--corpus", default="english", help="default: %(default)s")
    parser.add_argument("--words", default="1560000,6500000", help="sizes of the merge stage; default: %(default)s")
    parser.add_argument("--sizes", default="1.9,11.9", help="sizes of the texts in GB; default: %(default)s")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="default: %(default)s")
    parser.add_argument("--readers", type=int, default=12, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--folder", type=Path, default=corpora.cache_folder(), help="folder for the texts")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the table")
    parser.add_argument("--quick", action="store_true", help="a small text, one round, no files")
    options = parser.parse_args()
    if options.quick:
        options.corpus, options.words, options.sizes = "sample:1MB", "6000", "0.0001"
        options.vocab_size, options.rounds = 400, 1
    if (reason := devices.missing_gpu()) is not None:
        sys.exit(f"bench_gpu.py needs a GPU, but {reason}.")
    parts = options.parts.split(",")
    if unknown := sorted(set(parts) - set(PARTS)):
        sys.exit(f"--parts {unknown[0]} is not valid. Pass names from {', '.join(PARTS)}.")
    driver = devices.gpus.open(0)
    words = gm.count_words(corpora.resolve(options.corpus).path, device="cpu", progress=None)
    timed: list[Timed] = []

    def show(measured: list[Timed]) -> None:
        timed.extend(measured)
        print(table_of(measured), flush=True)

    if "merge" in parts:
        for num_words in map(int, options.words.split(",")):
            show(measure_merging(driver, recombined_words(words, num_words), options))
    if set(parts) - {"merge"}:
        for size in map(float, options.sizes.split(",")):
            with drawn_texts(words, [size], options.folder) as (text,):
                if "count" in parts:
                    show(measure_counting(driver, text, options))
                if "train" in parts:
                    show(measure_training(text, options))
                if "cold" in parts:
                    show(measure_cold(text, options))
    if not options.quick:
        page = write_result(
            "gpu",
            title=f"Count, merge and train on a GPU, vocabulary {options.vocab_size:,}, {options.rounds} rounds",
            about=about_run(),
            body=table_of(timed),
            data={"rows": [each._asdict() for each in timed]},
            folder=options.output,
        )
        print(json.dumps({"written": page.name}))


if __name__ == "__main__":
    main()
