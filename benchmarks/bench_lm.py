"""Time a training step of Gristmill's GPT against a common implementation (lm_baseline.py), in one process, on one GPU.

Both models have the same number of parameters within 2 %, the same batches, bf16 autocast, torch.compile, SDPA, fused
AdamW and clipping; they run in alternation. A step is that of the trainer: batch from the dataset, loss, backward,
clipping, optimizer. Each optimization is also turned off separately. Results are written to results/lm_SHAPE.{md,json}.

    python benchmarks/bench_lm.py                        both shapes
    python benchmarks/bench_lm.py --shapes 124m --rounds 5 --steps 20
    python benchmarks/bench_lm.py --quick                a smoke test on a CPU that writes nothing
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from gristmill.lm.data.batch import Batch
from gristmill.lm.data.token_dataset import TokenDataset
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.training.meters import device_peak
from gristmill.lm.training.optimizers import build_optimizer
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
            num_heads=16,
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
    GPTConfig(vocab_size=300, context_length=16, num_layers=2, num_heads=2, d_model=32, tie_embeddings=False),
    baseline_heads=4,
    batch_size=2,
    device="cpu",
)


class Contestant:
    """A compiled model with its optimizer and batches."""

    def __init__(self, name: str, model: nn.Module, loss: Callable[[Batch], Tensor], shape: Shape) -> None:
        self.name = name
        self.num_parameters = sum(parameter.numel() for parameter in model.parameters())
        self._device = shape.device
        self._model, self._loss = model, torch.compile(loss) if self._device == "cuda" else loss
        self._optimizer = build_optimizer(model, lr=3e-4)
        tokens = np.random.default_rng(0).integers(0, shape.ours.vocab_size, 20_000_000, dtype=np.uint16)
        self._dataset = TokenDataset(
            tokens, context_length=shape.ours.context_length, batch_size=shape.batch_size, seed=0, device=shape.device
        )
        self.wait_seconds = 0.0

    def step(self, number: int) -> Tensor:
        """One step of training; the loss stays on the device."""
        began = time.perf_counter()
        batch = self._dataset.batch(number)
        self.wait_seconds += time.perf_counter() - began
        with torch.autocast(self._device, torch.bfloat16):
            loss = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
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
    return Contestant("baseline", model, lambda batch: model(batch.inputs_BT, batch.targets_BT), shape)


def ours(name: str, shape: Shape, **changes: object) -> Contestant:
    """Gristmill's model, with some settings changed."""
    model = GPT(replace(shape.ours, **changes)).to(shape.device)  # type: ignore[arg-type]
    return Contestant(name, model, lambda batch: model.loss(batch, {})[0], shape)


def contestants(shape: Shape) -> Iterator[Callable[[], Contestant]]:
    """Yield the baseline, Gristmill's model, and the latter without each optimization."""
    yield lambda: baseline(shape)
    yield lambda: ours("ours", shape)
    yield lambda: ours("  logits whole instead of in parts", shape, loss_parts=0)
    yield lambda: ours("  residual stream in float32", shape, float32_residual=True)
    if shape.ours.num_heads != shape.baseline_heads:
        yield lambda: ours(f"  {shape.baseline_heads} heads", shape, num_heads=shape.baseline_heads)


def main() -> None:
    """Run the contest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="124m,17m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="a tiny model on a CPU; writes nothing")
    arguments = parser.parse_args()
    if arguments.quick:
        contest(QUICK, 2, 2)
        return
    if not torch.cuda.is_available():
        parser.error("no GPU found. This benchmark needs one; --quick runs on a CPU.")
    torch.set_float32_matmul_precision("high")
    for name in arguments.shapes.split(","):
        contest(SHAPES[name], arguments.rounds, arguments.steps)


def contest(shape: Shape, num_rounds: int, num_steps: int) -> None:
    """Time all contestants in alternation, and write the table."""
    torch.manual_seed(0)
    entries: list[tuple[Contestant, list[float], float]] = []
    for make in contestants(shape):
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
    peak = device_peak(gpu) if gpu else None
    flops = GPT(shape.ours).flops_per_token()
    first = statistics.median(entries[0][1])
    rows, data = [], {}
    for contestant, seconds, gigabytes in entries:
        middle = statistics.median(seconds)
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
    note = "\nbatch: share of a step in which the CPU prepared the batch; the GPU works meanwhile."
    write_result(f"lm_{shape.name}", title=title, about=about, body=table + "\n" + note, data=data, folder=RESULTS)


if __name__ == "__main__":
    main()
