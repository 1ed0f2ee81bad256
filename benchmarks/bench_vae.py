"""Measure the steps from a typical sequence VAE script to train_optimized.py, one at a time, on one GPU.

A rung of the ladder is a run of the trainer, as in examples/train_with_collapse_detection.py, with one more measure
than the previous rung. All runs are open at the same time and alternate: in each round every run trains on the same
share of the documents, so a slow minute of the machine affects all of them. Validations, the posterior monitor and its
plots occur at the steps of the whole epoch, and their time counts. Checkpoints are omitted, and compilation happens
before the first round. Tokens are counted without padding.

The part "step" compares the step with and without CUDA graphs, and the part "monitor" the step with and without the
monitor. Both use blocks of steps in alternation, in one compiled run. The part "docs" writes the table of docs/vae.md
from results/vae_ladder.json.

    python benchmarks/bench_vae.py                        ladder, step and monitor; results/vae_{ladder,step,monitor}.*
    python benchmarks/bench_vae.py --parts ladder,docs --seconds 480
    python benchmarks/bench_vae.py --parts step,monitor
    python benchmarks/bench_vae.py --parts docs
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import gristmill as gm
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, middle_and_spread, write_result
from gristmill.lm.data.document_data import DocumentData
from gristmill.lm.data.sequences import open_sequences
from gristmill.lm.models.vae.options import VAEConfig
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.devices import launch
from gristmill.lm.training.graphed_step import GraphedStep
from gristmill.lm.training.graphs import graphed_step
from gristmill.lm.training.losses import LossModule
from gristmill.lm.training.run import Run
from gristmill.lm.training.trainer import train_steps, without_garbage_collection
from gristmill.sample_corpus import write_sample_corpus
from results_folder import RESULTS
from vae_plot import draw_ladder

END = "<|endoftext|>"
MODEL = {"model": "vae", "num_layers": 6, "num_heads": 8, "d_model": 512, "latent_dim": 64, "tie_embeddings": True}
COMMON = {**MODEL, "learning_rate": 3e-4, "log_interval": 10, "checkpoint_interval": 0}
# For the schedules, which depend on the length of a run, a block of a round is a separate run.
COMMON |= {"warmup_steps": 0, "schedule": "constant", "kl_schedule": "constant"}

# examples/train_with_collapse_detection.py, without a limit that would truncate a document.
UNOPTIMIZED = {
    **{"batch_size": 1, "gradient_accumulation_steps": 1, "num_workers": 2, "pin_memory": False, "precision": "32"},
    **{"max_sequence_length": 2000, "update_frequency": 20, "window_size": 100, "plot_frequency": 500},
    **{"val_check_interval": 0.05, "limit_val_batches": 1.0, "cuda_graphs": "off"},
}
# Each entry is added to all previous ones. None: the default of the trainer.
LADDER: dict[str, dict[str, Any]] = {
    "before: batch 1, 2 workers, fp32, length 2,000": UNOPTIMIZED,
    "batch 4": {"batch_size": 4},
    "8 workers": {"num_workers": 8},
    "pinned memory": {"pin_memory": True},
    "length limit 1,000": {"max_sequence_length": 1000},
    "16-mixed": {"precision": "16-mixed"},
    "accumulation 2": {"gradient_accumulation_steps": 2},
    "fast detection: monitor every 200 steps": {
        **{"fast_detection": True, "update_frequency": None, "window_size": None, "plot_frequency": None}
    },
    "validation every 10 %, on a tenth": {"val_check_interval": 0.1, "limit_val_batches": 0.1},
    "dynamic padding": {"use_dynamic_padding": True},
    "compiled": {"compile_model": True},
    "no monitor": {"fast_detection": False, "disable_metrics_monitoring": True},
    "batch 32, accumulation 1, bf16-mixed": {
        **{"batch_size": 32, "gradient_accumulation_steps": 1, "precision": "bf16-mixed"}
    },
    "CUDA graphs": {"cuda_graphs": "auto"},
}
DOCS = Path(__file__).resolve().parent.parent / "docs" / "vae.md"
MARKS = ("<!-- vae_ladder.json: begin -->", "<!-- vae_ladder.json: end -->")


@dataclass(frozen=True)
class Block:
    """The results of a run in one round."""

    tokens_per_second: float
    num_steps: int
    validations: int
    monitored: int  # measurements of the posterior
    memory_bytes: int
    padding: float


def main() -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--parts", default="ladder,step,monitor", help="ladder, step, monitor, docs, separated by commas"
    )
    parser.add_argument("--documents", type=int, default=8_000, help="documents of the epoch of a run")
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds of all runs of the ladder, and of all kinds of steps"
    )
    parser.add_argument("--share", type=float, default=0.1, help="fraction of the epoch per round")
    parser.add_argument("--seconds", type=float, default=480, help="start no further round that would end later")
    parser.add_argument("--blocks", type=int, default=5, help="pairs of blocks with and without the monitor")
    parser.add_argument("--block-steps", type=int, default=200, help="steps per block of the monitor")
    parser.add_argument("--step-block", type=int, default=100, help="steps per block of the part step")
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a tiny model, to test the benchmark itself")
    arguments = parser.parse_args()
    if arguments.small:
        COMMON.update(num_layers=1, num_heads=2, d_model=32, latent_dim=8)
    COMMON["device"] = arguments.device
    parts = arguments.parts.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if {"ladder", "step", "monitor"} & {*parts}:
            make_shards(folder, arguments.documents)
        if "ladder" in parts:
            climb(folder, arguments)
        if {"step", "monitor"} & {*parts}:
            measure_steps(folder, arguments, parts)
        if "docs" in parts:
            write_docs(arguments)


def make_shards(folder: Path, num_documents: int) -> None:
    """Write stories as token shards, and their tokenizer."""
    write_sample_corpus(folder / "stories.txt", size=1_160 * num_documents, seed=0)
    tok = gm.train_tokenizer(folder / "stories.txt", vocab_size=4_000, special_tokens=[END], progress=None)
    val_fraction = max(0.01, 8 / num_documents)
    gm.encode_corpus(folder / "stories.txt", tok, out=folder / "shards", val_fraction=val_fraction, progress=None)


def open_data(folder: Path, options: VAEConfig) -> DocumentData:
    """The shards, read by worker processes as Parquet files are."""
    opened = open_sequences(folder / "shards", max_sequence_length=options.max_sequence_length)
    return DocumentData(replace(opened, from_parquet=True), options)


# The ladder


@dataclass
class Rung:
    """An open run of the ladder and its results so far."""

    name: str
    run: Run
    block_steps: int
    memory_bytes: int  # without the allocations of a step
    records: list[dict[str, Any]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def take_turn(self) -> None:
        """Train for one block, and record the results."""
        is_cuda, self.records = self.run.fabric.device.type == "cuda", []
        self.run.recorder.display.show = self.records.append  # type: ignore[method-assign, assignment]
        torch.cuda.reset_peak_memory_stats() if is_cuda else None
        before, num_tokens = torch.cuda.memory_allocated() if is_cuda else 0, self.run.num_tokens
        seconds = run_block(self.run, self.block_steps)
        extra = torch.cuda.max_memory_allocated() - before if is_cuda else 0
        kinds = [record["kind"] for record in self.records]
        self.blocks.append(
            Block(
                tokens_per_second=(self.run.num_tokens - num_tokens) / seconds,
                num_steps=self.block_steps,
                validations=kinds.count("val"),
                monitored=kinds.count("posterior"),
                memory_bytes=self.memory_bytes + extra,
                padding=statistics.fmean(r["padding"] for r in self.records if r["kind"] == "train"),
            )
        )


def climb(folder: Path, arguments: argparse.Namespace) -> None:
    """Open every run, alternate between them, and write the table and the plot after each round."""
    begin, longest = time.monotonic(), 0.0
    with contextlib.ExitStack() as opened:
        rungs = open_rungs(folder, arguments, opened)
        print(f"{len(rungs)} runs are open after {time.monotonic() - begin:.0f} s", flush=True)
        for number in range(arguments.rounds):
            round_begin = time.monotonic()
            if number and round_begin + longest > begin + arguments.seconds:
                print(f"no time for round {number + 1}", flush=True)
                break
            for rung in rungs:
                rung.take_turn()
                print(
                    f"round {number + 1}: {rung.blocks[-1].tokens_per_second:9,.0f} tokens/s  {rung.name}", flush=True
                )
            longest = max(longest, time.monotonic() - round_begin)
            write_ladder({rung.name: rung.blocks for rung in rungs}, arguments)
    print((arguments.output / "vae_ladder.md").read_text(encoding="utf-8"))


def open_rungs(folder: Path, arguments: argparse.Namespace, opened: contextlib.ExitStack) -> list[Rung]:
    """Yield all runs of the ladder, each after a few steps for warm-up and compilation."""
    rungs, options = [], dict[str, Any]()
    for name, measure in LADDER.items():
        options |= measure
        if arguments.eager:
            options["compile_model"] = False
        if options["precision"] == "16-mixed" and arguments.device == "cpu":
            options["precision"] = "bf16-mixed"
        before = torch.cuda.memory_allocated() if arguments.device == "cuda" else 0
        given = {option: value for option, value in options.items() if value is not None}
        run = opened.enter_context(run_of(folder, **given))
        run.save = lambda: None  # type: ignore[method-assign]  # an epoch this short would be full of checkpoints
        block_steps = max(1, round(arguments.share * run.max_steps))
        run_block(run, 10)
        memory = torch.cuda.memory_allocated() - before if arguments.device == "cuda" else 0
        rungs.append(Rung(name, run, block_steps, memory))
    return rungs


@contextlib.contextmanager
def run_of(folder: Path, **options: Any) -> Iterator[Run]:
    """Open a run on the shards in `folder`, before its first step; its files are removed afterwards."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        fabric, config = launch(TrainConfig.from_options({**COMMON, **options}))
        assert isinstance(config.model, VAEConfig)
        data = open_data(folder, config.model)
        with contextlib.closing(Run(fabric, config, data, Path(temporary))) as run:
            yield run
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()


def write_ladder(found: dict[str, list[Block]], arguments: argparse.Namespace) -> None:
    """Write results/vae_ladder and the plot."""
    blocks = {name: [vars(block) for block in blocks] for name, blocks in found.items()}
    num_rounds = len(next(iter(found.values())))
    page = write_result(
        "vae_ladder",
        folder=arguments.output,
        title="A sequence VAE, from the usual script to train_optimized.py",
        about=about(),
        body=ladder_table(blocks)
        + f"\n\n{num_rounds} rounds in which all rows take turns, {arguments.share:.0%} of an epoch of "
        f"{arguments.documents:,} documents each; tokens without padding, over the time of all rounds; float32 "
        "products are TF32 in all rows.\n\n![](vae.png)",
        data={"rungs": blocks, "rounds": num_rounds, "documents": arguments.documents, "share": arguments.share},
    )
    draw_ladder({name: rate_of(values) for name, values in blocks.items()}, page.parent / "vae.png")


def rate_of(blocks: list[dict[str, Any]]) -> float:
    """Return the tokens per second over all blocks, which have about the same number of tokens: the harmonic mean."""
    return float(statistics.harmonic_mean([block["tokens_per_second"] for block in blocks]))


def ladder_table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of the results and of docs/vae.md, from results/vae_ladder.json."""
    rates = {name: rate_of(blocks) for name, blocks in found.items()}
    first, before, rows = next(iter(rates.values())), next(iter(rates.values())), []
    for name, blocks in found.items():
        speeds = [block["tokens_per_second"] for block in blocks]
        rows.append(
            [
                name,
                f"{rates[name]:,.0f}",
                f"{min(speeds):,.0f}–{max(speeds):,.0f}",
                f"{rates[name] / before:.2f}x",
                f"{rates[name] / first:.1f}x",
                f"{max(block['memory_bytes'] for block in blocks) / 1e9:.2f}",
                f"{statistics.fmean(block['padding'] for block in blocks):.0%}",
            ]
        )
        before = rates[name]
    header = ["measure (with all above it)", "tokens/s", "min–max", "gain", "together", "GB", "padding"]
    return markdown_table(header, rows)


def write_docs(arguments: argparse.Namespace) -> None:
    """Write the table of results/vae_ladder.json to docs/vae.md, between the two markers."""
    found = json.loads((arguments.output / "vae_ladder.json").read_text(encoding="utf-8"))["rungs"]
    text = DOCS.read_text(encoding="utf-8")
    begin, end = (text.index(mark) for mark in MARKS)
    DOCS.write_text(f"{text[:begin]}{MARKS[0]}\n{ladder_table(found)}\n{text[end:]}", encoding="utf-8")


def about() -> dict[str, str]:
    """Machine and versions."""
    facts = describe_run(["torch", "pytorch-lightning", "numpy"])
    if torch.cuda.is_available():
        facts["GPU"] = torch.cuda.get_device_name()
    return facts


# Steps


def measure_steps(folder: Path, arguments: argparse.Namespace, parts: list[str]) -> None:
    """Open the last run of the ladder with the monitor, and measure its step and the cost of the monitor."""
    options: dict[str, Any] = {}
    for measure in LADDER.values():
        options |= measure
    options |= {"disable_metrics_monitoring": False, "update_frequency": 100, "window_size": 50, "plot_frequency": 1000}
    options |= {"max_steps": 10**9, "val_check_interval": 0, "compile_model": not arguments.eager}
    with run_of(folder, **options) as run:
        run.validate = lambda: None  # type: ignore[method-assign]  # at the end of each block
        run.recorder.display.show = lambda record: None  # type: ignore[method-assign]
        if "step" in parts:
            compare_steps(run, arguments)
        if "monitor" in parts:
            watch(run, arguments)


@dataclass
class Kind:
    """A way to compute a step: a module, and perhaps graphs of it."""

    name: str
    module: Any
    graphs: GraphedStep | None
    blocks: list[dict[str, float]] = field(default_factory=list)


def kinds_of_steps(run: Run) -> list[Kind]:
    """Return the ways to compare, of which the first is the reference."""
    compiled = "compiled" if run.config.compile_model else "eager"
    kinds = [Kind(f"{compiled}, without graphs", run.module, None)]
    if run.graphs is None:
        return kinds
    kinds.append(Kind(f"{compiled}, CUDA graphs", run.module, run.graphs))
    if run.config.compile_model:
        eager = run.fabric.setup_module(LossModule(run.model)).train()
        config = replace(run.config, compile_model=False)
        graphs = graphed_step(config, run.model, run.dataset, run.fabric.device, run._compute)
        kinds.append(Kind("eager, CUDA graphs", eager, graphs))
    return kinds


def compare_steps(run: Run, arguments: argparse.Namespace) -> None:
    """Measure each kind of step in blocks, in alternation, and write results/vae_step."""
    watched, module, graphs = run.watch, run.module, run.graphs
    run.watch = None
    kinds = kinds_of_steps(run)
    for number in range(arguments.rounds + 1):
        for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
            run.module, run.graphs = kind.module, kind.graphs
            block = step_block(run, arguments.step_block)
            if number:  # the first round compiles and captures
                kind.blocks.append(block)
            print(f"round {number}: {block['ms']:8.2f} ms per step  {kind.name}", flush=True)
    run.watch, run.module, run.graphs = watched, module, graphs
    write_steps(kinds, arguments)


def step_block(run: Run, num_steps: int) -> dict[str, float]:
    """Train for a block, and return its measurements."""
    records: list[dict[str, Any]] = []
    run.recorder.display.show = records.append  # type: ignore[method-assign, assignment]
    num_tokens, cpu = run.num_tokens, time.process_time()
    seconds = run_block(run, num_steps)
    waits = [record["data_wait"] for record in records if record["kind"] == "train"]
    return {
        "ms": 1e3 * seconds / num_steps,
        "cpu_ms": 1e3 * (time.process_time() - cpu) / num_steps,
        "data_wait": statistics.fmean(waits),
        "tokens_per_second": (run.num_tokens - num_tokens) / seconds,
    }


def write_steps(kinds: list[Kind], arguments: argparse.Namespace) -> None:
    """Write results/vae_step."""
    rows, reference = [], [block["ms"] for block in kinds[0].blocks]
    for kind in kinds:
        columns = {name: [block[name] for block in kind.blocks] for name in kind.blocks[0]}
        middle, spread = middle_and_spread(columns["ms"], digits=2)
        gain = statistics.median(before / after for before, after in zip(reference, columns["ms"], strict=True))
        others = {name: statistics.median(values) for name, values in columns.items()}
        rows.append(
            [
                *(kind.name, middle, spread, f"{gain:.2f}x", f"{others['data_wait']:.1%}"),
                *(f"{others['cpu_ms']:.2f}", f"{others['tokens_per_second']:,.0f}"),
            ]
        )
    header = ["step", "ms", "min–max", "gain", "waiting for data", "CPU ms of the run", "tokens/s"]
    page = write_result(
        "vae_step",
        folder=arguments.output,
        title="The step of a sequence VAE",
        about=about(),
        body=markdown_table(header, rows)
        + f"\n\nMedians of {arguments.rounds} rounds in which all rows take turns, {arguments.step_block} steps each; "
        "batches of 32, bf16-mixed, dynamic padding, no monitor. Tokens are counted without padding.",
        data={"blocks": {kind.name: kind.blocks for kind in kinds}},
    )
    print(page.read_text(encoding="utf-8"))


# The monitor


def watch(run: Run, arguments: argparse.Namespace) -> None:
    """Measure the cost of the monitor: blocks of steps with and without it, in alternation, in one run."""
    run.recorder.display.show = lambda record: None  # type: ignore[method-assign]
    overheads = measure_overhead(run, num_pairs=arguments.blocks, num_steps=arguments.block_steps)
    middle, spread = middle_and_spread([100 * share for share in overheads], digits=2)
    name = "every 100 steps"
    print(f"monitor {name}: {middle} % ({spread})", flush=True)
    how = "eager" if arguments.eager else "compiled"
    page = write_result(
        "vae_monitor",
        folder=arguments.output,
        title="Cost of the posterior monitor",
        about=about(),
        body=markdown_table(["update", "overhead %", "min–max"], [[name, middle, spread]])
        + f"\n\nMedian of {arguments.blocks} pairs of blocks of {arguments.block_steps} steps with and without it, in "
        f"turn; batches of 32, bf16-mixed, dynamic padding, {how}{'' if run.graphs is None else ', CUDA graphs'}. Gaps "
        "are measured at every fifth update. Plots (every 1,000 steps) are drawn by another process.",
        data={"overheads": {name: overheads}},
    )
    print(page.read_text(encoding="utf-8"))


def measure_overhead(run: Run, *, num_pairs: int, num_steps: int) -> list[float]:
    """Return the extra time of each block with the monitor, relative to its neighbours without it."""
    monitor = run.watch
    run_block(run, num_steps)  # every length is compiled or captured here
    seconds = []
    for number in range(2 * num_pairs + 1):
        run.watch = monitor if number % 2 else None
        seconds.append(run_block(run, num_steps))
    run.watch = monitor
    return [2 * seconds[i] / (seconds[i - 1] + seconds[i + 1]) - 1 for i in range(1, len(seconds) - 1, 2)]


def run_block(run: Run, num_steps: int) -> float:
    """Return the seconds that `num_steps` steps take."""
    run.config = replace(run.config, max_steps=run.step + num_steps)
    torch.cuda.synchronize() if run.fabric.device.type == "cuda" else None
    with without_garbage_collection():
        begin = time.perf_counter()
        train_steps(run)
        torch.cuda.synchronize() if run.fabric.device.type == "cuda" else None
        return time.perf_counter() - begin


if __name__ == "__main__":
    main()
