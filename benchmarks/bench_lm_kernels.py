"""Time each kernel of the training step beside plain torch and torch.compile, on one GPU.

The sizes are those of GPT-2 with 124M parameters: 64 x 1,024 tokens, width 768, 6 heads, d_ff 2,048, 50,257 tokens in
the vocabulary. tests/lm/kernels compare every kernel with plain torch; run them on the same GPU first. "floor" is the
time in which a copy moves the bytes that the kernel must read and write. The results are lm_kernels.{md,json}.

    python benchmarks/bench_lm_kernels.py
    python benchmarks/bench_lm_kernels.py --tune      also other block sizes, which are printed only
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional as F

from gristmill.bench.machine import describe_run
from gristmill.bench.tables import markdown_table, write_result
from gristmill.lm.kernels import cross_entropy, embedding, float8, rms_norm, rope, swiglu
from gristmill.lm.kernels.adamw import COLUMNS, adamw
from gristmill.lm.kernels.tables import TensorTable
from results_folder import RESULTS

N, D, HEADS, SIZE, D_FF, T, VOCAB, ROWS_V = 65_536, 768, 6, 128, 2_048, 1_024, 50_257, 50_304
PART = N // 4
BF16 = torch.bfloat16


@dataclass
class Case:
    """A kernel with the same computation in plain torch."""

    name: str
    num_bytes: int
    kernel: Callable[[], Any]
    plain: Callable[[], Any] | None = None
    variants: dict[str, Callable[[], Any]] = field(default_factory=dict)


def new(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    """Random numbers on the GPU."""
    return torch.randn(*shape, device="cuda").to(dtype)


def milliseconds(run: Callable[[], Any]) -> float:
    """Return the median time of a call on the GPU."""
    return float(triton.testing.do_bench(run, warmup=20, rep=60, return_mode="median"))


def site(dtype: torch.dtype) -> float8.Site:
    """Return a scale of 1."""
    one = torch.ones(4, device="cuda")
    return float8.Site(dtype, one[:1], one.clone()[:1], torch.zeros(4, device="cuda")[:1])


def norm_cases() -> list[Case]:
    """The norm, forward and backward."""
    x, delta, grad, weight = new(N, D), new(N, D), new(N, D), new(D, dtype=torch.float32)
    normed = rms_norm.add_rms_norm(x, delta, weight, eps=1e-5)
    leaf = x.clone().requires_grad_()
    leaf_weight = weight.clone().requires_grad_()

    def plain_backward() -> Any:
        total = F.rms_norm(leaf, (D,), leaf_weight.to(BF16), 1e-5)
        return torch.autograd.grad(total, (leaf, leaf_weight), grad)

    return [
        Case(
            "add + norm",
            4 * 2 * N * D,
            lambda: rms_norm.add_rms_norm(x, delta, weight, eps=1e-5),
            lambda: rms_norm.plain_add_rms_norm(x, delta, weight, eps=1e-5),
        ),
        Case(
            "add + norm, 8-bit result",
            (3 * 2 + 1) * N * D,
            lambda: rms_norm.add_rms_norm(x, delta, weight, eps=1e-5, site=site(float8.E4M3), keeps_normed=False),
        ),
        Case(
            "norm, backward",
            4 * 2 * N * D,
            lambda: rms_norm.rms_norm_gradient(grad, normed.stream_ND, weight, normed.factor_N, grad_stream_ND=delta),
            plain_backward,
        ),
    ]


def rope_cases() -> list[Case]:
    """Rotary positions, forward and backward."""
    angles = torch.outer(torch.arange(T, device="cuda"), 10_000 ** -torch.linspace(0, 1, SIZE // 2, device="cuda"))
    heads = rope.Heads(HEADS, HEADS, SIZE, angles.cos(), angles.sin(), 1e-5)
    qkv = new(N, heads.width)
    dq, dk, dv = (new(N // T, T, HEADS, SIZE) for _ in range(3))
    grads = dq, dk, dv
    norms = new(SIZE, dtype=torch.float32), new(SIZE, dtype=torch.float32)
    qk, all_three = 2 * N * 2 * HEADS * SIZE, 2 * N * heads.width
    small = site(float8.E5M2)
    return [
        Case(
            "rope",
            2 * qk,
            lambda: rope.rotated(qkv, heads, num_tokens=T),
            lambda: rope.plain_rotated(qkv, heads, num_tokens=T),
        ),
        Case("rope with norm", 2 * qk, lambda: rope.rotated(qkv, heads, num_tokens=T, norm_K2=norms)),
        Case("rope, backward", 2 * all_three, lambda: rope.rotation_gradient(grads, heads)),
        Case(
            "rope with norm, backward",
            2 * all_three + qk,
            lambda: rope.rotation_gradient(grads, heads, normed=(qkv, *norms)),
        ),
        Case(
            "rope, backward, 8-bit result",
            all_three * 3 // 2,
            lambda: rope.rotation_gradient(grads, heads, site=small, keeps_wide=False),
        ),
    ]


def swiglu_cases() -> list[Case]:
    """SwiGLU, forward and backward."""
    gate_up, grad = new(N, 2 * D_FF), new(N, D_FF)
    leaf = gate_up.clone().requires_grad_()
    one = 2 * N * D_FF
    e4, e5 = site(float8.E4M3), site(float8.E5M2)

    def plain_backward() -> Any:
        gate, up = leaf.chunk(2, dim=-1)
        return torch.autograd.grad(F.silu(gate) * up, leaf, grad)

    return [
        Case("swiglu", 3 * one, lambda: swiglu.swiglu(gate_up), lambda: swiglu.plain_swiglu(gate_up)),
        Case("swiglu, 8-bit result", 5 * one // 2, lambda: swiglu.swiglu(gate_up, site=e4, keeps_wide=False)),
        Case("swiglu, backward", 5 * one, lambda: swiglu.swiglu_gradient(gate_up, grad), plain_backward),
        Case(
            "swiglu, backward, 8-bit result",
            4 * one,
            lambda: swiglu.swiglu_gradient(gate_up, grad, site=e5, keeps_wide=False),
        ),
    ]


def loss_cases(*, tunes: bool) -> list[Case]:
    """The loss of a quarter of the tokens."""
    logits, targets = new(PART, ROWS_V), torch.randint(VOCAB, (PART,), device="cuda")
    losses = torch.empty(PART, device="cuda")
    small = torch.empty(PART, ROWS_V, device="cuda", dtype=float8.E5M2)

    def kernel(grad: Tensor | None, factor: float = 1.0) -> None:
        cross_entropy.cross_entropy(logits, targets, losses, vocab_size=VOCAB, grad_CV=grad, factor=factor)

    def variant(block: int, num_warps: int) -> Callable[[], None]:
        def run() -> None:
            kept = cross_entropy.WIDE_BLOCK, cross_entropy.WIDE_NUM_WARPS
            cross_entropy.WIDE_BLOCK, cross_entropy.WIDE_NUM_WARPS = block, num_warps
            kernel(logits)
            cross_entropy.WIDE_BLOCK, cross_entropy.WIDE_NUM_WARPS = kept

        return run

    def plain() -> Any:
        leaf = logits.detach().requires_grad_()
        loss = F.cross_entropy(leaf[:, :VOCAB].float(), targets, reduction="sum")
        return torch.autograd.grad(loss, leaf)

    sizes = [(2048, 16), (4096, 8), (4096, 16), (8192, 16), (8192, 32), (16384, 32)] if tunes else []
    return [
        Case(
            "loss and gradient, a quarter",
            2 * 2 * PART * ROWS_V,
            lambda: kernel(logits),
            plain,
            {f"block {block}, {warps} warps": variant(block, warps) for block, warps in sizes},
        ),
        Case("loss and 8-bit gradient, a quarter", 3 * PART * ROWS_V, lambda: kernel(small, 32768.0)),
        Case("loss alone, a quarter", 2 * PART * ROWS_V, lambda: kernel(None)),
    ]


def other_cases() -> list[Case]:
    """Embedding, casts, transposes, AdamW."""
    ids, grad = torch.randint(VOCAB, (N,), device="cuda"), new(N, D)
    # Words of a text are not equally frequent.
    ids = (ids.float() / VOCAB).pow(4).mul(VOCAB).long()
    table = torch.zeros(ROWS_V, D, device="cuda")
    activations, small = new(N, D), new(N, D_FF).to(float8.E4M3)
    gradient_site = site(float8.E5M2)
    weights = [new(size, D, dtype=torch.float32) for size in (ROWS_V, *[10_240] * 12)]
    copies = [weight.to(BF16) for weight in weights]
    moments = [[torch.zeros_like(weight) for weight in weights] for _ in range(2)]
    grads = [torch.randn_like(weight) for weight in weights]
    tensors = TensorTable([weights, grads, *moments, copies])
    assert len(COLUMNS) == 5
    num_weights = sum(weight.numel() for weight in weights)
    one, zero = torch.ones((), device="cuda"), torch.zeros((), device="cuda")
    steps = torch.ones(len(weights), device="cuda")
    leaves = [weight.clone().requires_grad_() for weight in weights]
    for leaf, each in zip(leaves, grads, strict=True):
        leaf.grad = each
    fused = torch.optim.AdamW(leaves, lr=1e-4, fused=True)

    def plain_update() -> None:
        torch.nn.utils.clip_grad_norm_(leaves, 1.0)
        fused.step()
        torch._foreach_copy_(copies, [leaf.detach() for leaf in leaves])

    def update() -> None:
        norm = torch.nn.utils.get_total_norm(grads)
        clip = (1 / (norm + 1e-6)).clamp(max=1.0)
        adamw(tensors, steps, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, clip=clip * one, skip=zero)

    return [
        Case(
            "gradient of the embedding",
            3 * 2 * N * D,
            lambda: embedding.add_embedding_gradient(table, grad, ids, is_deterministic=False),
            lambda: table.add_(embedding.plain_embedding_gradient(grad, ids, ROWS_V)),
        ),
        Case(
            "to 8-bit floats, both ways",
            4 * N * D,
            lambda: float8.quantized(activations, gradient_site, columns=True),
        ),
        Case("transpose of 8-bit floats", 2 * N * D_FF, lambda: float8.transposed(small)),
        Case("clipping, AdamW, copies", (4 + 28 + 2) * num_weights, update, plain_update),
    ]


def copy_speed() -> float:
    """Return the bytes per second, read and written, of a large copy."""
    source, target = (torch.empty(2_000_000_000, dtype=torch.uint8, device="cuda") for _ in range(2))
    return 4e9 / (milliseconds(lambda: target.copy_(source)) / 1e3)


def main() -> None:
    """Time all cases, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="also time other block sizes")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    speed = copy_speed()
    rows, data = [], {}
    makers = (norm_cases, rope_cases, swiglu_cases, lambda: loss_cases(tunes=arguments.tune), other_cases)
    for make in makers:
        for case in make():
            times = {"floor": case.num_bytes / speed * 1e3, "kernel": milliseconds(case.kernel)}
            if case.plain is not None:
                times["torch"] = milliseconds(case.plain)
                if not arguments.no_compile and "AdamW" not in case.name:
                    times["compiled"] = milliseconds(torch.compile(case.plain))
            rows.append(
                [
                    case.name,
                    *(f"{times[k]:.3f}" if k in times else "" for k in ("floor", "kernel", "compiled", "torch")),
                ]
            )
            print(" | ".join(rows[-1]), flush=True)
            data[case.name] = times
            for name, variant in case.variants.items():
                print(f"    {name}: {milliseconds(variant):.3f}", flush=True)
        torch.cuda.empty_cache()
    table = markdown_table(["ms", "floor", "kernel", "torch.compile", "torch"], rows)
    print(f"copy: {speed / 1e12:.2f} TB/s; sum of kernels {math.fsum(t['kernel'] for t in data.values()):.2f} ms")
    about = {"GPU": torch.cuda.get_device_name(), **describe_run(["torch", "triton", "numpy"])}
    note = (
        f"\nMedians of calls on one GPU, 124M parameters, 64 x 1,024 tokens. A copy moves {speed / 1e12:.2f} TB/s, "
        "counting bytes read and written. The backward rows of torch include the forward pass."
    )
    write_result(
        "lm_kernels",
        title="The kernels of a training step",
        about=about,
        body=table + "\n" + note,
        data={"milliseconds": data, "copy_bytes_per_second": speed},
        folder=RESULTS,
    )


if __name__ == "__main__":
    main()
