"""AdamW for many weights in one launch, with clipping and the bfloat16 copies of the weights.

The weights of a launch share their options, so there is one launch per parameter group. A weight is read and written
once per step: the gradient is multiplied by the factor that clips it, and the copy in bfloat16 that the next step
multiplies with is written with the weight. torch's fused AdamW takes a pass over all gradients for clipping, and
another one over all weights for their copies. Beside Muon, which does not clip, gradients are clipped before, and the
factor is 1.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gristmill.lm.kernels.tables import BLOCK, MISSING, TensorTable

__all__ = ["COLUMNS", "GRADIENT", "adamw", "plain_adamw"]

COLUMNS = ("weight", "gradient", "first moment", "second moment", "copy")
"""Columns of the table: float32, and bfloat16 for the copies."""
GRADIENT = COLUMNS.index("gradient")


def plain_adamw(
    weight: Tensor,
    grad: Tensor,
    moments: tuple[Tensor, Tensor],
    *,
    step: float,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    clip: float = 1.0,
) -> None:
    """Update one weight and its moments in place. `step` counts from 1. `clip` is multiplied with the gradient."""
    first, second = moments
    grad = grad * clip
    first.lerp_(grad, 1 - betas[0])
    second.lerp_(grad.square(), 1 - betas[1])
    denominator = (second / (1 - betas[1] ** step)).sqrt() + eps
    weight.mul_(1 - lr * weight_decay).sub_(lr / (1 - betas[0] ** step) * first / denominator)


def adamw(
    table: TensorTable,
    steps: Tensor,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    clip: Tensor,
    skip: Tensor,
) -> None:
    """Update all weights of a table with `COLUMNS`, their moments and copies.

    steps: step of each weight, counted from 1. clip: factor of the gradients. skip: 1 if nothing is to change. All are
    float32 on the device.
    """
    _adamw[(len(table.programs),)](
        table.origin(torch.float32),
        table.origin(torch.bfloat16),
        table.places,
        table.programs,
        steps,
        clip,
        skip,
        lr,
        lr * weight_decay,
        1 - betas[0],
        1 - betas[1],
        _log2(betas[0]),
        _log2(betas[1]),
        eps,
        len(COLUMNS) + 1,
        MISSING,
        BLOCK,
        num_warps=8,
    )


def _log2(beta: float) -> float:
    return math.log2(beta) if beta else -math.inf


@triton.jit
def _bias(log2_power):
    """Return 1 - 2^x for x < 0, exact also for small x, where the difference of two float32 numbers is not."""
    x = log2_power * 0.6931471805599453
    series = -x * (1.0 + x * (1.0 / 2 + x * (1.0 / 6 + x * (1.0 / 24))))
    return tl.where(x > -0.05, series, 1.0 - tl.exp2(log2_power))


@triton.jit
def _adamw(
    origin_ptr,
    copy_origin_ptr,
    places_ptr,
    programs_ptr,
    steps_ptr,
    clip_ptr,
    skip_ptr,
    lr,
    decay,
    one_minus_beta1,
    one_minus_beta2,
    log2_beta1,
    log2_beta2,
    eps,
    NUM_COLUMNS: tl.constexpr,
    MISSING: tl.constexpr,
    BLOCK: tl.constexpr,
):
    if tl.load(skip_ptr) == 0.0:
        number = tl.load(programs_ptr + 2 * tl.program_id(0))
        begin = tl.load(programs_ptr + 2 * tl.program_id(0) + 1)
        row_ptr = places_ptr + number * NUM_COLUMNS
        weight_ptr = origin_ptr + tl.multiple_of(tl.load(row_ptr) + begin, 4)
        grad_ptr = origin_ptr + tl.multiple_of(tl.load(row_ptr + 1) + begin, 4)
        first_ptr = origin_ptr + tl.multiple_of(tl.load(row_ptr + 2) + begin, 4)
        second_ptr = origin_ptr + tl.multiple_of(tl.load(row_ptr + 3) + begin, 4)
        copy_place = tl.load(row_ptr + 4)
        copy_ptr = copy_origin_ptr + tl.multiple_of(copy_place + begin, 8)
        size = tl.load(row_ptr + 5) - begin
        step = tl.load(steps_ptr + number)
        rate = lr / _bias(step * log2_beta1)
        root_bias = tl.sqrt(_bias(step * log2_beta2))
        clip = tl.load(clip_ptr)
        has_copy = copy_place != MISSING
        # A mask that may end anywhere would prevent reading 16 bytes at a time, so only the last block has one.
        if size >= BLOCK:
            _update(
                *(weight_ptr, grad_ptr, first_ptr, second_ptr, copy_ptr, has_copy, None),
                *(clip, rate, root_bias, decay, one_minus_beta1, one_minus_beta2, eps),
                BLOCK,
            )
        else:
            _update(
                *(weight_ptr, grad_ptr, first_ptr, second_ptr, copy_ptr, has_copy, tl.arange(0, BLOCK) < size),
                *(clip, rate, root_bias, decay, one_minus_beta1, one_minus_beta2, eps),
                BLOCK,
            )


@triton.jit
def _update(
    weight_ptr,
    grad_ptr,
    first_ptr,
    second_ptr,
    copy_ptr,
    has_copy,
    inside,
    clip,
    rate,
    root_bias,
    decay,
    one_minus_beta1,
    one_minus_beta2,
    eps,
    BLOCK: tl.constexpr,
):
    """Update a block."""
    place = tl.arange(0, BLOCK)
    grad = tl.load(grad_ptr + place, mask=inside) * clip
    first = tl.load(first_ptr + place, mask=inside)
    second = tl.load(second_ptr + place, mask=inside)
    weight = tl.load(weight_ptr + place, mask=inside)
    first += (grad - first) * one_minus_beta1
    second += (grad * grad - second) * one_minus_beta2
    weight = weight - decay * weight - rate * first / (tl.sqrt(second) / root_bias + eps)
    tl.store(first_ptr + place, first, mask=inside)
    tl.store(second_ptr + place, second, mask=inside)
    tl.store(weight_ptr + place, weight, mask=inside)
    if has_copy:
        tl.store(copy_ptr + place, weight.to(tl.bfloat16), mask=inside)
