"""Measure memory and time of a training step with document masks, sliding windows and activation checkpointing.

Needs a GPU. The model is that of the preset gpt2-124m, with 8 x 1,024 tokens, bf16 autocast and fused AdamW, with and
without torch.compile. All rows run in alternation. Before timing, losses and gradients with block masks (FlexAttention)
are compared with those with the dense mask. Results are written to results/attention.{md,json}.

    python benchmarks/bench_attention.py                 the table
    python benchmarks/bench_attention.py --check         the comparison only
    python benchmarks/bench_attention.py --no-check      the table without the comparison
    python benchmarks/bench_attention.py --quick         a smoke test on a CPU that writes nothing
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, middle_and_spread, write_result
from gristmill.lm.data.batch import Batch
from gristmill.lm.models.gpt import network
from gristmill.lm.models.gpt.network import GPT, GPTConfig
from gristmill.lm.training.optimizers import build_optimizer
from gristmill.lm.training.set_up import recompute_blocks
from results_folder import RESULTS

SHAPE = GPTConfig(
    vocab_size=50_257, context_length=1024, num_layers=12, num_heads=6, d_model=768, d_ff=2048, tie_embeddings=True
)
QUICK = GPTConfig(vocab_size=300, context_length=32, num_layers=2, num_heads=2, d_model=64)
DOCUMENT_TOKENS = 250  # on average
WINDOW = 256


@dataclass(frozen=True)
class Row:
    """One configuration of a step."""

    name: str
    has_documents: bool = False
    is_dense: bool = False
    is_recomputed: bool = False
    changes: dict[str, Any] = field(default_factory=dict)


ROWS = [
    Row("no mask"),
    Row("document_mask", has_documents=True),
    Row("document_mask, dense", has_documents=True, is_dense=True),
    Row(f"sliding_window={WINDOW}", changes={"sliding_window": WINDOW}),
    Row("activation_checkpointing", is_recomputed=True),
    Row("document_mask, activation_checkpointing", has_documents=True, is_recomputed=True),
]


def random_batch(config: GPTConfig, batch_size: int, *, has_documents: bool, device: str, seed: int = 0) -> Batch:
    """Random tokens in documents of random lengths."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch_size, config.context_length)
    tokens_BT = torch.randint(config.required_vocab_size, shape, generator=generator).to(device)
    ids_BT = (torch.rand(shape, generator=generator) < 1 / DOCUMENT_TOKENS).cumsum(1).to(device)
    return Batch(tokens_BT, tokens_BT.roll(-1, 1), document_ids_BT=ids_BT if has_documents else None)


@contextmanager
def dense_masks(is_dense: bool) -> Iterator[None]:
    """Use masks of one boolean per pair of tokens, as without FlexAttention."""
    with mock.patch.object(network, "can_use_blocks", _never) if is_dense else nullcontext():
        yield


def _never(*_: Any, **__: Any) -> bool:
    return False


class Contestant:
    """A model with its optimizer and batches."""

    def __init__(self, row: Row, config: GPTConfig, *, batch_size: int, device: str, is_compiled: bool) -> None:
        self.row, self.is_compiled, self._device = row, is_compiled, device
        self.seconds: list[float] = []
        self.bytes: list[int] = []
        before = allocated(device)
        torch.manual_seed(0)
        model = GPT(replace(config, **row.changes)).to(device)
        if row.is_recomputed:
            recompute_blocks(model)
        self._optimizer = build_optimizer(model, lr=3e-4)
        self._loss: Callable[[Batch], Tensor] = lambda batch: model.loss(batch, {})[0]
        if is_compiled:
            self._loss = torch.compile(self._loss)
        self._batches = [
            random_batch(config, batch_size, has_documents=row.has_documents, device=device, seed=seed)
            for seed in range(4)
        ]
        self.take(3)  # compiles
        self._kept = allocated(device) - before

    def take(self, num_steps: int) -> None:
        """Take steps."""
        with dense_masks(self.row.is_dense):
            for number in range(num_steps):
                with torch.autocast(self._device, torch.bfloat16):
                    loss = self._loss(self._batches[number % len(self._batches)])
                loss.backward()  # type: ignore[no-untyped-call]
                self._optimizer.step()
                self._optimizer.zero_grad()
        if self._device == "cuda":
            torch.cuda.synchronize()

    def measure(self, num_steps: int) -> None:
        """Time steps, and measure peak memory: that of the model and its optimizer, and that of a step."""
        before = allocated(self._device)
        if self._device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        self.take(num_steps)
        self.seconds.append((time.perf_counter() - began) / num_steps)
        peak = torch.cuda.max_memory_allocated() if self._device == "cuda" else 0
        self.bytes.append(self._kept + peak - before)


def allocated(device: str) -> int:
    """The bytes of tensors on the GPU."""
    return torch.cuda.memory_allocated() if device == "cuda" else 0


def gradients(
    config: GPTConfig, batch: Batch, *, is_dense: bool, is_compiled: bool, autocast: bool
) -> dict[str, Tensor]:
    """Return the loss of a new model, and its gradients by name."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = GPT(config).to(batch.inputs_BT.device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # so that attention matters
    loss_of = torch.compile(model.loss) if is_compiled else model.loss
    with dense_masks(is_dense), torch.autocast(batch.inputs_BT.device.type, torch.bfloat16, enabled=autocast):
        loss, _ = loss_of(batch, {})
    loss.backward()  # type: ignore[no-untyped-call]
    found = {name: p.grad.float() for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), **found}


CHECKS = [
    (1024, {}, "32", False),
    (1024, {}, "bf16-mixed", True),
    (1000, {"num_kv_heads": 2, "qk_norm": True, "sliding_window": 300}, "32", True),
    (1000, {"num_kv_heads": 2, "qk_norm": True, "sliding_window": 300}, "bf16-mixed", False),
]


def differences(device: str) -> Iterator[dict[str, Any]]:
    """Compare gradients with block masks and with dense masks to those with dense masks in float32."""
    sizes = {"vocab_size": 1000, "num_layers": 2, "num_heads": 4, "d_model": 256}
    for length, changes, precision, is_compiled in CHECKS:
        config = GPTConfig(**sizes, **changes, context_length=length)  # type: ignore[arg-type]
        batch = random_batch(config, 4, has_documents=True, device=device)
        exact = gradients(config, batch, is_dense=True, is_compiled=False, autocast=False)
        blocks, dense = (
            gradients(config, batch, is_dense=is_dense, is_compiled=is_compiled, autocast=precision == "bf16-mixed")
            for is_dense in (False, True)
        )
        yield {
            "options": f"context_length={length} {changes}",
            "precision": precision,
            "compiled": is_compiled,
            "blocks": _distance(blocks, exact),
            "dense": _distance(dense, exact),
        }


def _distance(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Return the largest difference of a weight's gradient, or of the loss, relative to its norm."""
    return max(float((found[name] - expected[name]).norm() / expected[name].norm()) for name in expected)


def check(device: str) -> list[dict[str, Any]]:
    """Compare, print, and raise an error if block masks round much worse than dense masks."""
    found = []
    for each in differences(device):
        print(each, flush=True)
        found.append(each)
        if each["blocks"] > max(1e-5, 1.5 * each["dense"]):
            raise SystemExit(f"block masks differ from dense masks by more than rounding: {each}")
    return found


def main() -> None:
    """Check, measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--no-check", action="store_true", help="measure only")
    parser.add_argument("--quick", action="store_true", help="a tiny model on a CPU; writes nothing")
    arguments = parser.parse_args()
    if arguments.quick:
        measure([Contestant(row, QUICK, batch_size=2, device="cpu", is_compiled=False) for row in ROWS], 2, 1)
        return
    if not torch.cuda.is_available():
        parser.error("no GPU found. This benchmark needs one; --quick runs on a CPU.")
    torch.set_float32_matmul_precision("highest")
    found = [] if arguments.no_check else check("cuda")
    if arguments.check:
        return
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64  # all rows are the same code
    contestants: list[Contestant] = []
    for is_compiled in (False, True):
        ready = list(prepared(arguments.batch_size, is_compiled=is_compiled))
        measure(ready, arguments.rounds, arguments.steps)
        contestants += ready
        report(contestants, found, arguments.batch_size)  # before anything is compiled, which takes minutes


def prepared(batch_size: int, *, is_compiled: bool) -> Iterator[Contestant]:
    """Yield the rows; compiled, only those with a different result, because each takes most of a minute."""
    for row in ROWS:
        if not (is_compiled and (row.is_dense or row.changes)):
            began = time.perf_counter()
            yield Contestant(row, SHAPE, batch_size=batch_size, device="cuda", is_compiled=is_compiled)
            print(f"{row.name}, compiled {is_compiled}: ready after {time.perf_counter() - began:.0f} s", flush=True)


def measure(contestants: list[Contestant], num_rounds: int, num_steps: int) -> None:
    """Run all rows in alternation, round by round."""
    for _ in range(num_rounds):
        for contestant in contestants:
            contestant.measure(num_steps)


def report(contestants: list[Contestant], found: list[dict[str, Any]], batch_size: int) -> None:
    """Print the table and write it to results/."""
    rows = []
    for contestant in contestants:
        first = next(each for each in contestants if each.is_compiled == contestant.is_compiled)
        milliseconds = [1e3 * seconds for seconds in contestant.seconds]
        rows.append(
            [
                contestant.row.name,
                "yes" if contestant.is_compiled else "no",
                *middle_and_spread(milliseconds, digits=1),
                f"{statistics.median(contestant.seconds) / statistics.median(first.seconds):.2f}x",
                f"{max(contestant.bytes) / 1e9:.2f}",
                f"{max(contestant.bytes) / max(first.bytes):.3f}x",
            ]
        )
    header = ["step", "compile_model", "ms", "min–max", "of no mask", "peak GB", "of no mask"]
    table = markdown_table(header, rows)
    listed = [
        [each["options"], each["precision"], *(f"{each[name]:.1e}" for name in ("blocks", "dense"))] for each in found
    ]
    note = f"\nDocuments have {DOCUMENT_TOKENS} tokens on average. The peak includes weights, optimizer and one step."
    if found:
        note += "\n\nThe greatest difference from gradients with a dense mask in float32, as a share of the norm:\n\n"
        note += markdown_table(["model", "precision", "by blocks", "dense"], listed)
    print(table, note, flush=True)
    data = {
        "differences": found,
        "steps": [
            {"name": c.row.name, "compiled": c.is_compiled, "seconds": c.seconds, "bytes": c.bytes} for c in contestants
        ],
    }
    about = {"GPU": torch.cuda.get_device_name(), **describe_run(["torch"])}
    title = (
        f"Attention: a training step of 124M parameters, {batch_size} x {SHAPE.context_length} tokens, bf16, one GPU"
    )
    write_result("attention", title=title, about=about, body=table + "\n" + note, data=data, folder=RESULTS)


if __name__ == "__main__":
    main()
