"""From a sequence VAE as scripts usually train it to train_optimized.py, one measure at a time, on one GPU.

Every rung of the ladder is one epoch of the same documents through the trainer itself, with the same model, the same
sequences a step (accumulation makes up for small batches), validations and the posterior monitor included; a rung keeps
the measures of those before it. Tokens are counted without padding. The time is that of the steps after a warm-up,
which holds compilation; validations and plots between them count, checkpoints do not.

A second part sets the monitor against no monitor, in one run, block by block in turn.

    python benchmarks/bench_vae.py                        both parts; results/vae_{ladder,monitor}.{md,json}, vae.png
    python benchmarks/bench_vae.py --documents 2000 --rounds 1 --parts ladder
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import gristmill as gm
from gristmill.lm.data.document_data import DocumentData
from gristmill.lm.data.sequences import open_sequences
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.devices import launch
from gristmill.lm.training.run import Run
from gristmill.lm.training.trainer import train_steps
from gristmill.sample_corpus import write_sample_corpus
from machine import describe_run
from tables import RESULTS, markdown_table, middle_and_spread, write_result
from vae_plot import draw_ladder

END = "<|endoftext|>"
SEQUENCES_PER_STEP = 32
MODEL = {"model": "vae", "num_layers": 6, "num_heads": 8, "d_model": 512, "latent_dim": 64, "tie_embeddings": True}
COMMON = {**MODEL, "learning_rate": 3e-4, "log_interval": 5, "checkpoint_interval": 1.0, "kl_schedule": "linear"}

UNOPTIMIZED = {
    "batch_size": 1,
    "num_workers": 2,
    "pin_memory": False,
    "precision": "32",
    "update_frequency": 20,
    "val_check_interval": 0.05,
    "limit_val_batches": 1.0,
}
# Each is added to all before it.
LADDER: dict[str, dict[str, Any]] = {
    "unoptimised: batch 1, 2 workers, fp32": UNOPTIMIZED,
    "batch 4": {"batch_size": 4},
    "8 workers, pinned memory": {"num_workers": 8, "pin_memory": True},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "dynamic padding": {"use_dynamic_padding": True},
    "monitor every 200 steps": {"fast_detection": True},
    "validation: every 10 %, a tenth of it": {"val_check_interval": 0.1, "limit_val_batches": 0.1},
    "batch 32": {"batch_size": 32},
    "compiled": {"compile_model": True},
}


@dataclass(frozen=True)
class Rung:
    """What one run came to."""

    tokens_per_second: float
    memory_bytes: int
    padding: float
    data_wait: float
    val_loss: float


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="ladder,monitor", help="ladder, monitor, or both")
    parser.add_argument("--documents", type=int, default=8_000, help="of the epoch of a rung")
    parser.add_argument("--rounds", type=int, default=3, help="times that the ladder is climbed")
    parser.add_argument("--blocks", type=int, default=12, help="pairs of blocks with and without the monitor")
    parser.add_argument("--block-steps", type=int, default=200, help="steps of such a block")
    parser.add_argument("--eager", action="store_true", help="do not compile in the part of the monitor")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try the benchmark itself")
    arguments = parser.parse_args()
    if arguments.small:
        COMMON.update(num_layers=1, num_heads=2, d_model=32, latent_dim=8)
    COMMON["device"] = arguments.device
    with tempfile.TemporaryDirectory() as temporary:
        data = make_data(Path(temporary), arguments.documents)
        for part in arguments.parts.split(","):
            {"ladder": climb, "monitor": watch}[part](data, Path(temporary), arguments)


def make_data(folder: Path, num_documents: int) -> DocumentData:
    """Stories, as token shards, given to the loader as Parquet files are: in processes of their own."""
    write_sample_corpus(folder / "stories.txt", size=1_160 * num_documents, seed=0)
    tok = gm.train_tokenizer(folder / "stories.txt", vocab_size=4_000, special_tokens=[END], progress=None)
    gm.encode_corpus(folder / "stories.txt", tok, out=folder / "shards", val_fraction=0.01, progress=None)
    return DocumentData(replace(open_sequences(folder / "shards", max_sequence_length=1000), from_parquet=True))


# The ladder


def climb(data: DocumentData, folder: Path, arguments: argparse.Namespace) -> None:
    """Run every rung, in turn, and write the table and the picture."""
    found: dict[str, list[Rung]] = {name: [] for name in LADDER}
    for number in range(arguments.rounds):
        options: dict[str, Any] = {}
        for name, measure in LADDER.items():
            options |= measure
            rung = run_rung(data, options, folder / f"run-{number}")
            found[name].append(rung)
            print(f"{rung.tokens_per_second:12,.0f} tokens/s  {name}", flush=True)
            write_ladder({name: rungs for name, rungs in found.items() if rungs}, arguments)
    print((RESULTS / "vae_ladder.md").read_text(encoding="utf-8"))


def run_rung(data: DocumentData, options: dict[str, Any], folder: Path) -> Rung:
    """One epoch with these options, in a folder of its own."""
    records: list[dict[str, Any]] = []
    accumulation = SEQUENCES_PER_STEP // int(options["batch_size"])
    with run_of(data, folder, gradient_accumulation_steps=accumulation, **options) as run:
        run.save = lambda: None  # type: ignore[method-assign]  # an epoch this short would be full of checkpoints
        run.display.show = records.append  # type: ignore[method-assign, assignment]
        torch.cuda.reset_peak_memory_stats() if run.fabric.device.type == "cuda" else None
        train_steps(run)
        run.finish()
    steps = [record for record in records if record["kind"] == "train"]
    vals = [record["loss"] for record in records if record["kind"] == "val" and record["full"]]
    begin, end = steps[max(1, len(steps) // 3)], steps[-1]
    return Rung(
        tokens_per_second=(end["tokens"] - begin["tokens"]) / (end["seconds"] - begin["seconds"]),
        memory_bytes=end["memory_bytes"],
        padding=statistics.fmean(record["padding"] for record in steps),
        data_wait=statistics.median(record["data_wait"] for record in steps),
        val_loss=vals[-1],
    )


@contextlib.contextmanager
def run_of(data: DocumentData, folder: Path, **options: Any) -> Iterator[Run]:
    """A run, ready for its first step; its files are removed afterwards."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        fabric, config = launch(TrainConfig.from_options({**COMMON, **options}))
        with contextlib.closing(Run(fabric, config, data, Path(temporary))) as run:
            yield run
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()


def write_ladder(found: dict[str, list[Rung]], arguments: argparse.Namespace) -> None:
    """results/vae_ladder and the picture."""
    rates = {name: statistics.median(r.tokens_per_second for r in rungs) for name, rungs in found.items()}
    first = next(iter(rates.values()))
    rows, before = [], first
    for name, rungs in found.items():
        middle, spread = middle_and_spread([r.tokens_per_second for r in rungs], digits=0)
        rows.append(
            [
                name,
                f"{int(middle):,}",
                spread,
                f"{rates[name] / before:.2f}x",
                f"{rates[name] / first:.1f}x",
                f"{max(r.memory_bytes for r in rungs) / 1e9:.2f}",
                f"{rungs[0].padding:.1%}",
                f"{statistics.median(r.data_wait for r in rungs):.1%}",
                f"{rungs[0].val_loss:.3f}",
            ]
        )
        before = rates[name]
    header = ["measure (with all above it)", "tokens/s", "min–max", "gain", "together", "GB", "padding", "data wait"]
    page = write_result(
        "vae_ladder",
        title="A sequence VAE, from unoptimised to optimised",
        about=about(),
        body=markdown_table([*header, "validation loss"], rows)
        + f"\n\nOne epoch of {arguments.documents:,} documents a rung, {SEQUENCES_PER_STEP} sequences a step, median "
        f"of {arguments.rounds}; tokens without padding; float32 products are TF32 in all rungs.\n\n![](vae.png)",
        data={"rungs": {name: [vars(rung) for rung in rungs] for name, rungs in found.items()}},
    )
    draw_ladder(rates, page.parent / "vae.png")


def about() -> dict[str, str]:
    """Machine and versions."""
    facts = describe_run(["torch", "pytorch-lightning", "numpy"])
    if torch.cuda.is_available():
        facts["GPU"] = torch.cuda.get_device_name()
    return facts


# The monitor


def watch(data: DocumentData, folder: Path, arguments: argparse.Namespace) -> None:
    """What the monitor costs: blocks of steps with it and without it, in turn, in one run."""
    options: dict[str, Any] = {}
    for measure in LADDER.values():
        options |= measure
    options |= {"fast_detection": False, "val_check_interval": 0, "checkpoint_interval": 0}
    options |= {"warmup_steps": 0, "schedule": "constant", "kl_schedule": "constant"}
    rows, found = [], {}
    options |= {"gradient_accumulation_steps": 1, "max_steps": 10**9, "compile_model": not arguments.eager}
    for frequency in (100, 20):
        with run_of(data, folder / "watched", **{**options, "update_frequency": frequency}) as run:
            overheads = measure_overhead(run, num_pairs=arguments.blocks, num_steps=arguments.block_steps)
        middle, spread = middle_and_spread([100 * share for share in overheads], digits=2)
        found[f"every {frequency} steps"] = overheads
        rows.append([f"every {frequency} steps", middle, spread])
        print(f"monitor every {frequency} steps: {middle} % ({spread})", flush=True)
    page = write_result(
        "vae_monitor",
        title="What the posterior monitor costs",
        about=about(),
        body=markdown_table(["update", "overhead %", "min–max"], rows)
        + f"\n\nMedian of {arguments.blocks} pairs of blocks of {arguments.block_steps} steps with and without it, in "
        f"turn; batches of 32, bf16-mixed, dynamic padding, {'eager' if arguments.eager else 'compiled'}. Gaps are "
        "measured at every fifth update. Plots (every 1,000 steps) are drawn by another process.",
        data={"overheads": found},
    )
    print(page.read_text(encoding="utf-8"))


def measure_overhead(run: Run, *, num_pairs: int, num_steps: int) -> list[float]:
    """The extra time of each block with the monitor, as a share of the blocks without it on both sides of it."""
    monitor = run.watch
    run_block(run, num_steps)  # every length is compiled here
    seconds = []
    for number in range(2 * num_pairs + 1):
        run.watch = monitor if number % 2 else None
        seconds.append(run_block(run, num_steps))
    run.watch = monitor
    return [2 * seconds[i] / (seconds[i - 1] + seconds[i + 1]) - 1 for i in range(1, len(seconds) - 1, 2)]


def run_block(run: Run, num_steps: int) -> float:
    """The seconds of so many steps."""
    run.config = replace(run.config, max_steps=run.step + num_steps)
    torch.cuda.synchronize() if run.fabric.device.type == "cuda" else None
    begin = time.perf_counter()
    train_steps(run)
    torch.cuda.synchronize() if run.fabric.device.type == "cuda" else None
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
