"""Time a training step of Gristmill's GPT against a common implementation (lm_baseline.py), in one process, on one GPU.

Both models have the same number of parameters within 2 %, the same batches, bf16 autocast, torch.compile, SDPA, fused
AdamW and clipping; they run in alternation. A step is that of the trainer: batch from the dataset, loss, backward,
clipping, optimizer. The baseline and the rows without kernels are compiled. The rows with kernels are not: the kernels
are the step, and a CUDA graph replays it. Results are written to results/lm_SHAPE.{md,json}.

    python benchmarks/bench_lm.py                        both shapes
    python benchmarks/bench_lm.py --only baseline,ours,all
    python benchmarks/bench_lm.py --shapes 124m --rounds 5 --steps 20
    python benchmarks/bench_lm.py --to-loss 17m          time to the loss of the baseline instead (to_loss.py)
    python benchmarks/bench_lm.py --to-loss 124m --texts english.txt code.txt multilingual.txt
    python benchmarks/bench_lm.py --quick                a smoke test on a CPU that writes nothing
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import to_loss
from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from gristmill.lm.data.batch import Batch
from gristmill.lm.data.token_dataset import TokenDataset
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.models.model import Kernels
from gristmill.lm.training.cuda_capture import CudaCapture
from gristmill.lm.training.graphed_step import GraphedStep
from gristmill.lm.training.meters import device_peak
from gristmill.lm.training.optimizers import build_optimizer
from gristmill.lm.training.weight_updates import WeightUpdates
from lm_baseline import Baseline
from results_folder import RESULTS

Step = Callable[[int], Tensor]


@dataclass(frozen=True)
class Shape:
    """A model size and a batch."""

    name: str
    ours: GPTConfig
    baseline_heads: int
    batch_size: int
    device: str = "cuda"


# As in the presets "gpt2-124m" and "tinystories-17m", the latter with a separate head.
SHAPES = {
    "124m": Shape(
        "124m",
        GPTConfig(
            vocab_size=50_257,
            context_length=1024,
            num_layers=12,
            num_heads=6,
            d_model=768,
            d_ff=2048,
            tie_embeddings=True,
        ),
        baseline_heads=12,
        batch_size=64,
    ),
    "17m": Shape(
        "17m",
        GPTConfig(
            vocab_size=10_000,
            context_length=256,
            num_layers=4,
            num_heads=4,
            d_model=512,
            d_ff=1344,
            tie_embeddings=False,
        ),
        baseline_heads=16,
        batch_size=256,
    ),
}


QUICK = Shape(
    "quick",
    GPTConfig(vocab_size=300, context_length=16, num_layers=2, num_heads=2, d_model=32, d_ff=88, tie_embeddings=False),
    baseline_heads=4,
    batch_size=2,
    device="cpu",
)


class Contestant:
    """A model with its optimizer and batches. With kernels, its step is that of the trainer, replayed from a graph."""

    def __init__(
        self,
        name: str,
        model: nn.Module,
        loss: Callable[[Batch], Tensor],
        shape: Shape,
        *,
        is_compiled: bool,
        kernels: Kernels | None = None,
        precision: str = "bf16-mixed",
        has_graph: bool = True,
    ) -> None:
        self.name, self.precision = name, precision
        self.num_parameters = sum(parameter.numel() for parameter in model.parameters())
        self._device, self._kernels = shape.device, kernels
        self._model, self._loss = model, torch.compile(loss) if is_compiled and self._device == "cuda" else loss
        self._optimizer = build_optimizer(model, lr=3e-4, copies=None if kernels is None else kernels.copies)
        fabric: Any = SimpleNamespace(device=torch.device(self._device), strategy=SimpleNamespace(precision=None))
        self._updates = WeightUpdates(fabric, self._optimizer, model, clip_norm=1.0) if kernels is not None else None
        # Words of a text are not equally frequent, and gradients of frequent words are added to the same rows.
        numbers = np.random.default_rng(0).random(20_000_000, dtype=np.float32)
        tokens = (numbers**4 * shape.ours.required_vocab_size).astype(np.uint16)
        self._dataset = TokenDataset(
            tokens, context_length=shape.ours.context_length, batch_size=shape.batch_size, seed=0, device=shape.device
        )
        self.wait_seconds = 0.0
        while kernels is not None and kernels.needs_calibration:
            self._loss(self._dataset.batch(0)).backward()  # type: ignore[no-untyped-call]
            model.zero_grad()
            kernels.after_update()
        self._graph: GraphedStep | None = None
        if kernels is not None and has_graph:
            self._graph = GraphedStep(
                self._computed,
                model,
                widths=[shape.ours.context_length],
                device=torch.device(self._device),
                capture=CudaCapture(torch.device(self._device)),
                prepare=kernels.opened,
                before_replay=kernels.refresh,
                others=kernels.changed,
                is_single=True,
            )

    def _computed(self, fields: dict[str, Any], schedule: dict[str, Tensor], share: Tensor) -> dict[str, Tensor]:
        loss = self._loss(Batch(**fields))
        loss.backward()  # type: ignore[no-untyped-call]
        return {"loss": loss.detach()}

    def step(self, number: int) -> Tensor:
        """One step of training; the loss stays on the device."""
        began = time.perf_counter()
        batch = self._dataset.batch(number)
        self.wait_seconds += time.perf_counter() - began
        if self._graph is not None:
            loss = self._graph.computed(batch, {}, 1.0)["loss"]
        else:
            with torch.autocast(self._device, torch.bfloat16):
                loss = self._loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
        if self._updates is not None and self._kernels is not None:
            self._updates.update()
            self._kernels.after_update()
        else:
            nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
            self._optimizer.step()
            self._optimizer.zero_grad()
        return loss.detach()

    def timed(self, first: int, num_steps: int) -> float:
        """Seconds per step."""
        self._wait()
        began = time.perf_counter()
        for number in range(first, first + num_steps):
            self.step(number)
        self._wait()
        return (time.perf_counter() - began) / num_steps

    def _wait(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()


def new_baseline(shape: Shape) -> Baseline:
    """The common GPT-2 implementation, with the sizes of Gristmill's model."""
    config = shape.ours
    return Baseline(
        vocab_size=config.padded_vocab_size,
        context_length=config.context_length,
        num_layers=config.num_layers,
        num_heads=shape.baseline_heads,
        d_model=config.d_model,
        tie_embeddings=config.tie_embeddings,
    )


def baseline(shape: Shape) -> Contestant:
    """The baseline, ready."""
    model = new_baseline(shape).to(shape.device)
    return Contestant(
        "baseline", model, lambda batch: model(batch.inputs_BT, batch.targets_BT), shape, is_compiled=True
    )


def ours(
    name: str, shape: Shape, *, float8: str | None = None, has_graph: bool = True, **changes: object
) -> Contestant:
    """Gristmill's model with some settings changed: with kernels if `float8` is given, otherwise compiled."""
    model = GPT(replace(shape.ours, **changes)).to(shape.device)  # type: ignore[arg-type]
    has_kernels = float8 is not None and shape.device == "cuda"
    kernels = model.use_kernels(float8=float8 or "off") if has_kernels else None
    precision = "bf16-mixed" if float8 in (None, "off") else "float8"
    return Contestant(
        name,
        model,
        lambda batch: model.loss(batch, {})[0],
        shape,
        is_compiled=kernels is None,
        kernels=kernels,
        precision=precision,
        has_graph=has_graph,
    )


def contestants(shape: Shape) -> dict[str, Callable[[], Contestant]]:
    """Return the baseline, Gristmill's model with kernels, and the latter with other settings, by name."""
    found: dict[str, Callable[[], Contestant]] = {
        "baseline": lambda: baseline(shape),
        "ours": lambda: ours("ours", shape, float8="off"),
        "head": lambda: ours("  float8 head", shape, float8="head"),
        "blocks": lambda: ours("  float8 blocks", shape, float8="blocks"),
        "all": lambda: ours("  float8 all", shape, float8="all"),
        "no-graph": lambda: ours("  without a CUDA graph", shape, float8="off", has_graph=False),
        "all-no-graph": lambda: ours("  float8 all, without a CUDA graph", shape, float8="all", has_graph=False),
        "plain": lambda: ours("  plain, compiled", shape),
        "one-part": lambda: ours("  loss in one part", shape, float8="off", loss_parts=1),
        "qk-norm": lambda: ours("  with qk_norm", shape, float8="off", qk_norm=True),
    }
    if shape.ours.num_heads != shape.baseline_heads:
        heads = shape.baseline_heads
        found["heads"] = lambda: ours(f"  {heads} heads", shape, float8="off", num_heads=heads)
        found["heads-all"] = lambda: ours(f"  {heads} heads, float8 all", shape, float8="all", num_heads=heads)
    return found


def main() -> None:
    """Run the contest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="124m,17m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", help="names of rows, separated by commas: baseline, ours, head, blocks, all, …")
    parser.add_argument("--quick", action="store_true", help="a tiny model on a CPU; writes nothing")
    parser.add_argument("--to-loss", choices=[*SHAPES, "quick"], help="measure the time to the loss of the baseline")
    parser.add_argument("--texts", nargs="*", type=Path, default=[], help="texts beside the sample corpus (--to-loss)")
    parser.add_argument("--shards", type=Path, help="folder for the shards, which are kept (--to-loss)")
    parser.add_argument("--sample-size", type=float, default=0.3, help="GB of the sample corpus (--to-loss)")
    parser.add_argument("--tokens", type=float, help="tokens of the baseline (--to-loss)")
    parser.add_argument("--rates", default="1e-3,2e-3,4e-3", help="learning rates of the baseline (--to-loss)")
    parser.add_argument("--share", type=float, default=0.6, help="tokens of recipes, of the baseline's (--to-loss)")
    parser.add_argument("--recipes", default="", help="names of recipes, separated by commas (--to-loss)")
    parser.add_argument("--no-ingredients", action="store_true", help="skip the single ingredients (--to-loss)")
    arguments = parser.parse_args()
    if arguments.to_loss:
        run_to_loss(arguments)
        return
    if arguments.quick:
        contest(QUICK, 2, 2, None)
        return
    if not torch.cuda.is_available():
        parser.error("no GPU found. This benchmark needs one; --quick runs on a CPU.")
    torch.set_float32_matmul_precision("high")
    for name in arguments.shapes.split(","):
        contest(SHAPES[name], arguments.rounds, arguments.steps, arguments.only)


def run_to_loss(arguments: argparse.Namespace) -> None:
    """Make the corpus, and measure the time to the loss of the baseline."""
    is_quick = arguments.to_loss == "quick"
    shape = QUICK if is_quick else SHAPES[arguments.to_loss]
    model = replace(shape.ours, vocab_size=shape.ours.vocab_size if not is_quick else 512)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if arguments.shards is None else arguments.shards
        sample_bytes = 200_000 if is_quick else int(arguments.sample_size * 1e9)
        shards = to_loss.make_shards(
            folder, sample_bytes=sample_bytes, texts=arguments.texts, vocab_size=model.required_vocab_size
        )
        num_tokens = int(arguments.tokens or {"17m": 60e6, "124m": 300e6, "quick": 20 * 32}[arguments.to_loss])
        chosen = to_loss.Contest(
            shape.name,
            model,
            shape.baseline_heads,
            shape.batch_size,
            shards,
            num_tokens,
            num_held_out=8 if is_quick else 2_000_000 // model.context_length,
            device=shape.device,
        )
        recipes = {
            name: {**options, **({"float8": "off"} if is_quick else {})}
            for name, options in to_loss.RECIPES.items()
            if not arguments.recipes or name in arguments.recipes.split(",")
        }
        names = ["sample corpus", *(path.stem for path in arguments.texts)]
        to_loss.contest(
            chosen,
            corpus=" and ".join(names),
            folder=folder if is_quick else RESULTS,
            rates=[float(rate) for rate in arguments.rates.split(",")],
            recipes=recipes,
            share=arguments.share,
            with_ingredients=not arguments.no_ingredients and not is_quick,
        )


def contest(shape: Shape, num_rounds: int, num_steps: int, only: str | None) -> None:
    """Time all contestants in alternation, and write the table."""
    torch.manual_seed(0)
    entries: list[tuple[Contestant, list[float], float]] = []
    found = contestants(shape)
    for make in found.values() if only is None else [found[name] for name in only.split(",")]:
        if shape.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        contestant = make()
        contestant.timed(0, 4)  # compiles
        entries.append((contestant, [], (torch.cuda.max_memory_allocated() - before) / 1e9))
        print(f"{contestant.name}: ready", flush=True)
    for round_number in range(num_rounds):
        for contestant, seconds, _ in entries:
            contestant.wait_seconds = 0.0
            seconds.append(contestant.timed(4 + round_number * num_steps, num_steps))
    report(shape, entries, num_steps)


def report(shape: Shape, entries: list[tuple[Contestant, list[float], float]], num_steps: int) -> None:
    """Print the table and write it to results/."""
    tokens = shape.batch_size * shape.ours.context_length
    gpu = torch.cuda.get_device_name() if shape.device == "cuda" else None
    flops = GPT(shape.ours).flops_per_token()
    first = statistics.median(entries[0][1])
    rows, data = [], {}
    for contestant, seconds, gigabytes in entries:
        middle = statistics.median(seconds)
        peak = device_peak(gpu, contestant.precision) if gpu else None
        mfu = f"{100 * flops * tokens / middle / peak:.1f} %" if peak else ""
        wait = 100 * contestant.wait_seconds / num_steps / seconds[-1]
        rows.append(
            [
                contestant.name,
                f"{contestant.num_parameters / 1e6:.1f}M",
                f"{middle * 1e3:.2f}",
                f"{min(seconds) * 1e3:.2f}–{max(seconds) * 1e3:.2f}",
                f"{tokens / middle / 1e3:,.0f}k",
                mfu,
                f"{first / middle:.3f}x",
                f"{wait:.2f} %",
                f"{gigabytes:.1f}",
            ]
        )
        data[contestant.name.strip()] = {"seconds": seconds, "parameters": contestant.num_parameters}
    header = ["step", "parameters", "ms", "min–max", "tokens/s", "MFU", "of baseline", "batch", "GB"]
    table = markdown_table(header, rows)
    print(table, flush=True)
    if gpu is None:
        return
    about = {"GPU": gpu, **describe_run(["torch", "numpy"])}
    title = f"A training step: {shape.name}, {shape.batch_size} x {shape.ours.context_length} tokens, bf16, one GPU"
    note = (
        "\nbatch: share of a step in which the CPU prepared the batch; the GPU works meanwhile. The MFU of rows with "
        "float8 is relative to the peak of 8-bit products, which is twice that of bfloat16."
    )
    write_result(f"lm_{shape.name}", title=title, about=about, body=table + "\n" + note, data=data, folder=RESULTS)


if __name__ == "__main__":
    main()
