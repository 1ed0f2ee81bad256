"""Time training, encoding and steps of a model with and without a trace, in alternation with an older version.

Each side runs in a separate process that answers one request at a time. The results of all sides are compared before
their times. Results are written to results/trace.{md,json}.

    python benchmarks/bench_trace.py --old OTHER_CHECKOUT/src --before ITS_COMMIT
    python benchmarks/bench_trace.py --quick          a smoke test that writes nothing
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gristmill.bench import corpora
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from results_folder import RESULTS

SIDES = ("before", "without", "with")


class Stopwatch:
    """Wall-clock and CPU seconds of the `with` blocks."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter() - self._began[0]
        self.cpu += time.process_time() - self._began[1]


def train(request: dict[str, Any], watch: Stopwatch) -> bytes:
    """Train a tokenizer."""
    import gristmill as gm

    with watch:
        tok = gm.train_tokenizer(request["corpus"], vocab_size=request["vocab_size"], num_threads=2, progress=None)
    return tok.merge_ids.tobytes()


def encode(request: dict[str, Any], watch: Stopwatch) -> bytes:
    """Encode the corpus into shards."""
    import gristmill as gm

    tok = gm.Tokenizer.load(request["tokenizer"])
    with tempfile.TemporaryDirectory() as folder:
        with watch:
            gm.encode_corpus(request["corpus"], tok, out=f"{folder}/shards", num_threads=2, progress=None)
        return Path(folder, "shards", "shard-00000.bin").read_bytes()


def step(request: dict[str, Any], watch: Stopwatch) -> bytes:
    """Train a small model. The time is that of the training loop, without the setup of the run."""
    import gristmill as gm
    from gristmill.lm.training import trainer

    loop = trainer.train_steps

    def timed(run: Any) -> None:
        with watch:
            loop(run)

    trainer.train_steps = timed
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = gm.lm.train(
                request["shards"],
                out=f"{folder}/run",
                device="cpu",
                max_steps=request["steps"],
                val_check_interval=0,
                checkpoint_interval=0,
                log_interval=10,
                limit_val_batches=1,
                progress=None,
                **request["model"],
            )
    finally:
        trainer.train_steps = loop
    return repr(result.loss).encode()


TASKS: dict[str, Callable[[dict[str, Any], Stopwatch], bytes]] = {"train": train, "encode": encode, "step": step}
SHAPE = {"context_length": 64, "num_layers": 2, "num_heads": 2, "d_model": 64, "batch_size": 8, "precision": "32"}


def serve() -> None:
    """Answer requests from stdin with wall-clock seconds, CPU seconds and a checksum of the result."""
    import gristmill as gm

    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            record = gm.recording(f"{folder}/trace.json") if request["side"] == "with" else contextlib.nullcontext()
            with record:
                watch = Stopwatch()
                result = TASKS[request["task"]](request, watch)
        checksum = hashlib.sha256(result).hexdigest()
        print(json.dumps({"wall": watch.wall, "cpu": watch.cpu, "checksum": checksum}), flush=True)


class Side:
    """A version of the package in a separate process."""

    def __init__(self, name: str, source: str) -> None:
        path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({**request, "side": self._name}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def requests(corpus: Path, folder: Path, *, quick: bool) -> dict[str, dict[str, Any]]:
    """Return the request of each task, after making its inputs."""
    import gristmill as gm

    tok = gm.train_tokenizer(corpus, vocab_size=8000, progress=None)
    tok.save(folder / "tok.json")
    gm.encode_corpus(corpus, tok, out=folder / "shards", val_fraction=0.0005, progress=None)
    steps = 5 if quick else 40
    shards = {"task": "step", "shards": str(folder / "shards"), "steps": steps, "model": SHAPE}
    return {
        "train a tokenizer, 8,000": {"task": "train", "corpus": str(corpus), "vocab_size": 8000},
        "encode into shards": {"task": "encode", "corpus": str(corpus), "tokenizer": str(folder / "tok.json")},
        f"{steps} steps of a small model": shards,
    }


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--old", help="src folder of an older version; without it, only this version is timed")
    parser.add_argument("--before", default="-", help="the commit of the older version, for the results")
    parser.add_argument("--corpus", default="sample", help="a path or a name; see corpora.py")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="a small corpus and few rounds; writes nothing")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the folder of the results")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    if arguments.quick:
        arguments.corpus, arguments.rounds = "quick", 2
    here = str(Path(__file__).resolve().parent.parent / "src")
    sources = {"before": arguments.old, "without": here, "with": here}
    sides = {name: Side(name, source) for name, source in sources.items() if source}
    rows, data = [], {}
    corpus = corpora.resolve(arguments.corpus)
    with tempfile.TemporaryDirectory() as folder:
        for task, request in requests(corpus.path, Path(folder), quick=arguments.quick).items():
            times = compared(sides, request, arguments.rounds)
            rows.append(row(task, times))
            data[task] = times
            print(rows[-1], flush=True)
    for side in sides.values():
        side.close()
    head = ["two threads", "without a trace", "with a trace", "with / without", "CPU", "without / before", "CPU"]
    table = markdown_table(head, rows)
    print(table)
    if arguments.quick:
        return
    note = (
        "Times are medians, with the smallest and the largest in brackets. A ratio is the median over the rounds of "
        "the ratio within a round, with the quartiles in brackets; the columns CPU compare CPU times. The sides "
        "alternate, in an order that rotates from round to round, and their results were equal."
    )
    about = describe_run(["gristmill", "numpy", "torch"]) | {"before": arguments.before, "corpus": corpus.what}
    title = "The cost of recording a trace"
    write_result("trace", title=title, about=about, body=f"{table}\n\n{note}", data=data, folder=arguments.output)


Times = dict[str, dict[str, list[float]]]  # by side, "wall" or "cpu", and round


def compared(sides: dict[str, Side], request: dict[str, Any], rounds: int) -> Times:
    """Return the seconds of each side in each round, after a round that fills the caches."""
    times: Times = {name: {"wall": [], "cpu": []} for name in sides}
    checksums = set()
    for number in range(rounds + 1):
        names = list(sides)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            answer = sides[name].ask(request)
            checksums.add(answer["checksum"])
            if number > 0:
                for clock, values in times[name].items():
                    values.append(answer[clock])
    assert len(checksums) == 1, "the results differ"
    return times


def row(task: str, times: Times) -> list[str]:
    """Return a row of the table."""
    ratios = [
        ratio(times[one][clock], times[other][clock]) if other in times else "-"
        for one, other in (("with", "without"), ("without", "before"))
        for clock in ("wall", "cpu")
    ]
    return [task, milliseconds(times["without"]["wall"]), milliseconds(times["with"]["wall"]), *ratios]


def milliseconds(values: list[float]) -> str:
    return f"{1e3 * statistics.median(values):.1f} ms ({1e3 * min(values):.1f}–{1e3 * max(values):.1f})"


def ratio(numerators: list[float], denominators: list[float]) -> str:
    found = [a / b for a, b in zip(numerators, denominators, strict=True)]
    low, middle, high = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
    return f"{middle:.3f} ({low:.3f}–{high:.3f})"


if __name__ == "__main__":
    main()
