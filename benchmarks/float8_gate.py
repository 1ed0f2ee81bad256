"""The gate of 8-bit floats: whether training with them ends at the held-out loss of training in bfloat16.

Runs differ in the learning rate, the seed (initial weights and order of the windows) and the arithmetic: bfloat16 with
Triton kernels, bfloat16 in plain torch, and 8-bit floats. The first is the reference; the second shows how far two
equally good implementations drift apart. Held-out losses are computed in bfloat16 from the float32 weights. The gate is
passed if the 95 % confidence interval of the mean difference from the reference, with one value per seed, ends below
+0.01 nats.

Several processes share the GPU, because a small model does not fill it. Their time is not measured.

    python benchmarks/float8_gate.py --shards english-shards
    python benchmarks/float8_gate.py --quick                  a smoke test on a CPU that writes nothing
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from gristmill.lm.models.gpt.network import GPTConfig
from results_folder import RESULTS
from to_loss import Contest, make_shards, plain_loss, run_of, train_until

LEARNING_RATES = (3e-4, 6e-4)
LIMIT = 0.01  # nats
REFERENCE = "bfloat16"
ARITHMETICS: dict[str, dict[str, Any]] = {
    REFERENCE: {},
    "bfloat16, plain torch": {"kernels": "plain"},
    "float8 head": {"float8": "head"},
    "float8 blocks": {"float8": "blocks"},
    "float8 all": {"float8": "all"},
}
# Weights that start at 0 and grow fast are hard for the scales of 8-bit floats.
MUON = {"optimizer": "muon", "muon_learning_rate": 0.01, "output_init": "zero"}
# Two-sided 95 % quantiles of Student's t distribution, by degrees of freedom from 1 on.
T_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return (mean, lower end, upper end) of the 95 % confidence interval of the mean.

    >>> [round(each, 3) for each in interval([0.01, 0.02, 0.03])]
    [0.02, -0.005, 0.045]
    """
    mean, count = statistics.fmean(differences), len(differences)
    if count < 2:
        return mean, -math.inf, math.inf
    quantile = T_QUANTILES[min(count - 1, len(T_QUANTILES)) - 1]
    half = quantile * statistics.stdev(differences) / math.sqrt(count)
    return mean, mean - half, mean + half


def contest_of(arguments: argparse.Namespace, shards: Path) -> Contest:
    """The model of the gate."""
    quick = arguments.quick
    return Contest(
        name="gate",
        model=GPTConfig(
            vocab_size=1000 if quick else 10_000,
            context_length=32 if quick else 256,
            num_layers=1 if quick else 4,
            num_heads=2 if quick else 4,
            d_model=32 if quick else 512,
            d_ff=64 if quick else 1344,
        ),
        baseline_heads=4,
        batch_size=2 if quick else arguments.batch_size,
        shards=shards,
        num_tokens=0,
        num_held_out=8 if quick else 4096,
        device="cpu" if quick else "cuda",
    )


def work(arguments: argparse.Namespace) -> None:
    """Train the runs that come on standard input, one per line, and print their held-out losses."""
    contest = contest_of(arguments, arguments.shards)
    if not arguments.quick:
        torch.set_float32_matmul_precision("high")
    for line in sys.stdin:
        job = json.loads(line)
        options = {
            **{"seed": job["seed"], "learning_rate": job["learning_rate"], "log_interval": 100},
            **{"warmup_steps": 0.1, "schedule": "wsd", "decay_fraction": 0.3, "final_fraction": 0.05},
            **(MUON if arguments.muon else {}),
            **ARITHMETICS[job["arithmetic"]],
        }
        with run_of(contest, options, num_steps=arguments.steps) as run:
            train_until(run, arguments.steps)
            loss = plain_loss(contest, run.model)
        print(json.dumps({**job, "loss": loss}), flush=True)


def study(arguments: argparse.Namespace, shards: Path) -> list[dict[str, Any]]:
    """Return the held-out losses of all runs, trained by several processes."""
    names = [name for name, options in ARITHMETICS.items() if not (arguments.quick and "float8" in options)]
    if arguments.only:
        names = [REFERENCE, *(name for name in names if name in arguments.only.split("; "))]
    jobs = [
        {"seed": seed, "learning_rate": lr, "arithmetic": name}
        for seed in range(arguments.seeds)
        for lr in LEARNING_RATES
        for name in names
    ]
    waiting, found = iter(jobs), []
    command = [sys.executable, __file__, *sys.argv[1:], "--shards", str(shards), "--worker"]
    deadline = time.monotonic() + arguments.seconds

    def one_worker(_: int) -> None:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            while time.monotonic() < deadline and (job := next(waiting, None)) is not None:
                process.stdin.write(json.dumps(job) + "\n")
                process.stdin.flush()
                if not (line := process.stdout.readline()):
                    raise RuntimeError(f"a worker ended while training {job}")
                found.append(json.loads(line))
                print(line, end="", flush=True)
            process.stdin.close()

    with ThreadPoolExecutor(arguments.processes) as pool:
        list(pool.map(one_worker, range(arguments.processes)))
    return found


def differences(found: list[dict[str, Any]], name: str) -> dict[float, dict[int, float]]:
    """Return the differences of the loss from the reference, by learning rate and seed, of finished pairs."""
    losses = {(run["seed"], run["learning_rate"], run["arithmetic"]): run["loss"] for run in found}
    result: dict[float, dict[int, float]] = {}
    for (seed, rate, arithmetic), loss in sorted(losses.items()):
        if arithmetic == name and (seed, rate, REFERENCE) in losses:
            result.setdefault(rate, {})[seed] = loss - losses[seed, rate, REFERENCE]
    return result


def means_of_seeds(by_rate: dict[float, dict[int, float]]) -> list[float]:
    """Return the mean of each seed over the learning rates.

    Pairs of one seed share their initial weights and the order of their data, so only seeds are independent.
    """
    seeds = sorted({seed for of_rate in by_rate.values() for seed in of_rate})
    return [statistics.fmean(of_rate[seed] for of_rate in by_rate.values() if seed in of_rate) for seed in seeds]


def report(found: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """Print the table of differences, and write it to results/float8_gate."""
    rows: list[list[str]] = []
    outcome: dict[str, dict[str, Any]] = {}
    for name in ARITHMETICS:
        by_rate = differences(found, name)
        if name == REFERENCE or not by_rate:
            continue
        groups = {f"{rate:g}": list(of_rate.values()) for rate, of_rate in by_rate.items()}
        groups["all, by seed"] = means_of_seeds(by_rate)
        outcome[name] = {}
        for group, values in groups.items():
            mean, low, high = interval(values)
            passed = high < LIMIT
            outcome[name][group] = {"mean": mean, "low": low, "high": high, "values": values, "passed": passed}
            verdict = "passed" if passed else "not passed"
            rows.append([name, group, str(len(values)), f"{mean:+.4f}", f"{low:+.4f} to {high:+.4f}", verdict])
    table = markdown_table(["arithmetic", "learning rate", "seeds", "mean", "95 % interval", "gate"], rows)
    print(table)
    if arguments.quick:
        return
    note = (
        f"\n\nDifferences of the held-out loss in nats from bfloat16 with kernels, in pairs of one seed and learning "
        f"rate: 22.8M parameters, {arguments.steps:,} steps of {arguments.batch_size} x 256 tokens, "
        f"{arguments.corpus}; "
        f"{len(found)} runs finished, {arguments.seeds} seeds were planned. Passed: the interval ends below "
        f"+{LIMIT} nats. The last row of each arithmetic decides; it has one value per seed."
    )
    about = describe_run(["torch", "triton", "numpy"])
    about["GPU"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "none; an earlier study"
    data = {"runs": found, "outcome": outcome}
    write_result(
        "float8_gate", title="The gate of 8-bit floats", about=about, body=table + note, data=data, folder=RESULTS
    )


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, help="token shards with a vocabulary of at most 10,000")
    parser.add_argument("--corpus", default="English text", help="what the shards are, for the report")
    parser.add_argument("--seeds", type=int, default=6, help="pairs per learning rate")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no further run after this time")
    parser.add_argument("--only", help="arithmetics to compare with bfloat16, separated by '; '")
    parser.add_argument("--muon", action="store_true", help="train with Muon, and with output_init='zero'")
    parser.add_argument("--quick", action="store_true", help="tiny runs on a CPU; writes nothing")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.steps, arguments.processes, arguments.seeds = 4, 2, 2
    if arguments.worker:
        work(arguments)
        return
    if arguments.quick:
        with tempfile.TemporaryDirectory() as folder:
            shards = make_shards(Path(folder), sample_bytes=200_000, texts=[], vocab_size=1000)
            report(study(arguments, shards), arguments)
        return
    if not torch.cuda.is_available() or arguments.shards is None:
        parser.error("this study needs a GPU and --shards; --quick runs on a CPU.")
    report(study(arguments, arguments.shards), arguments)


if __name__ == "__main__":
    main()
