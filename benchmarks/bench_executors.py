"""Measure the overhead of executors on one machine: threads, processes and Ray count and encode the same file.

    python benchmarks/bench_executors.py                                   1 GB made from english, five rounds
    python benchmarks/bench_executors.py --workers 16 --rounds 5
    python benchmarks/bench_executors.py --quick                           5 MB, one round; writes nothing

Each run is a fresh process, with executors in alternation. The time excludes starting a Ray cluster and includes
starting the processes of `processes`. If the words or shards of executors differ, nothing is printed. The driver alone
is measured with 10,000 parts that finish immediately.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import gristmill as gm
from gristmill.bench import corpora
from gristmill.bench.corpora import Corpus
from gristmill.bench.fresh_process import Sample, measure
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, middle_and_spread, write_result
from results_folder import RESULTS

EXECUTORS = ("local", "processes", "ray")
HEADER = ["task", "executor", "runs", "s", "min–max", "of local", "CPU/wall", "worker MB", "driver MB"]
NOTE = """s: wall time of `count_words` or `encode_corpus`, file in the page cache, output on the disk. of local: by the
median of the rounds. CPU/wall: of the process and its descendants. worker MB: the largest high-water mark of a
worker process. driver MB: that of the process that calls Gristmill, in `local` the one that does all the work."""


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="a name or path (corpora.py), default: large:1000MB")
    parser.add_argument("--executors", default=",".join(EXECUTORS), help="default: %(default)s")
    parser.add_argument("--tasks", default="count,encode", help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=2, help="threads or workers, default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="default: %(default)s")
    parser.add_argument("--parts", type=int, default=10_000, help="of the driver alone, default: %(default)s")
    parser.add_argument("--folder", type=Path, help="folder for shards, default: a temporary folder")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the tables")
    parser.add_argument("--quick", action="store_true", help="a smoke test of a few seconds; writes nothing")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.vocab_size, options.parts = 1, 1_000, 100
    options.corpus = options.corpus or ("sample:5MB" if options.quick else "large:1000MB")
    return options


def measured(options: argparse.Namespace, corpus: Corpus, folder: Path) -> dict[tuple[str, str], list[Sample]]:
    """Return the samples of each task and executor, round by round."""
    tokenizer = folder / "tokenizer.json"
    gm.train_tokenizer(corpus.path, vocab_size=options.vocab_size, progress=None).save(tokenizer)
    samples: dict[tuple[str, str], list[Sample]] = {}
    digests: dict[str, str] = {}
    for _ in range(options.rounds):
        for task in options.tasks.split(","):
            for executor in options.executors.split(","):
                with tempfile.TemporaryDirectory(dir=folder) as out:
                    job = {"task": task, "executor": executor, "num_workers": options.workers, "folder": out}
                    job |= {"path": str(corpus.path), "tokenizer": str(tokenizer)}
                    sample = measure("executor_jobs", job, num_threads=options.workers)
                if digests.setdefault(task, sample.facts["digest"]) != sample.facts["digest"]:
                    sys.exit(f"{task} with {executor} gives another result, so no time is reported.")
                samples.setdefault((task, executor), []).append(sample)
                print(f"{task} {executor}: {sample.seconds:.2f} s", file=sys.stderr, flush=True)
    return samples


def cpu_per_wall(sample: Sample) -> float:
    """Return the number of CPUs that the process and its workers kept busy."""
    return float(sample.cpu_seconds + sample.facts["worker_cpu_seconds"]) / sample.seconds


def rows(samples: Mapping[tuple[str, str], Sequence[Sample]]) -> list[list[str]]:
    """Return the rows of the table."""
    lines = []
    for (task, executor), runs in samples.items():
        seconds = [run.seconds for run in runs]
        local = [run.seconds for run in samples.get((task, "local"), [])]
        worker = max(run.facts["worker_peak_bytes"] for run in runs)
        lines.append(
            [
                task,
                executor,
                str(len(runs)),
                *middle_and_spread(seconds, digits=2),
                f"{median(a / b for a, b in zip(seconds, local, strict=True)):.2f}" if local else "",
                f"{median(map(cpu_per_wall, runs)):.2f}",
                f"{worker / 1e6:.0f}" if worker else "",
                f"{max(run.peak_rss_bytes for run in runs) / 1e6:.0f}",
            ]
        )
    return lines


def main() -> None:
    """Parse the options, measure, print and write the table."""
    options = parse_options()
    corpus = corpora.resolve(options.corpus)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        samples = measured(options, corpus, Path(folder))
    driver = measure("executor_jobs", {"task": "driver", "num_parts": options.parts}, num_threads=1)
    alone = (
        f"The driver alone, {options.parts:,} parts that finish immediately: {driver.peak_rss_bytes / 1e6:.0f} MB at "
        f"most, {driver.start_rss_bytes / 1e6:.0f} MB of it before it starts; {driver.seconds:.1f} s."
    )
    body = f"{markdown_table(HEADER, rows(samples))}\n\n{NOTE}\n\n{alone}"
    print(body)
    if options.quick:
        return
    page = write_result(
        f"executors_{corpus.name}_{options.workers}w",
        title=f"Executors: {corpus.name} ({corpus.megabytes:,.0f} MB), {options.workers} workers",
        about={"corpus": corpus.what, **describe_run(["gristmill", "ray"])},
        body=body,
        data={
            "samples": {f"{task} {name}": [asdict(run) for run in runs] for (task, name), runs in samples.items()},
            "driver": asdict(driver),
        },
        folder=options.output,
    )
    print(f"written: {page.name}")


if __name__ == "__main__":
    main()
