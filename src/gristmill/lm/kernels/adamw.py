"""AdamW for all weights in one launch, with clipping and the bfloat16 copies of the weights.

A weight is read and written once per step: the gradient is multiplied by the factor that clips it, and the copy in
bfloat16 that the next step multiplies with is written with the weight. torch's fused AdamW takes a pass over all
gradients for clipping, and another one over all weights for their copies.

The kernel takes any list of tensors: a table holds their addresses, and another one the tensor of each program.
Addresses are stored as distances from the first weight, because the compiler reads 16 bytes at a time only from a
pointer that it knows to be aligned, such as an argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["Tables", "adamw", "plain_adamw"]

BLOCK = 4096  # numbers per program
COLUMNS = 6  # of the table: places of weight, gradient, both moments, copy; number of elements
NO_COPY = -(2**62)
ALIGNMENT = 16  # bytes, of all addresses


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


class Tables:
    """The tables of a list of weights, on their device."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        moments: Sequence[tuple[Tensor, Tensor]],
        copies: Sequence[Tensor | None],
        weight_decays: Sequence[float],
    ) -> None:
        """copies: bfloat16 copies to write, or None for weights that have none."""
        self.origin, self._device = weights[0], weights[0].device
        self.copy_origin = next((copy for copy in copies if copy is not None), weights[0])
        rows = [
            [
                *(self._place(weight), 0, self._place(first), self._place(second)),
                NO_COPY if copy is None else _distance(copy, self.copy_origin),
                weight.numel(),
            ]
            for weight, (first, second), copy in zip(weights, moments, copies, strict=True)
        ]
        self._rows = torch.tensor(rows, dtype=torch.int64)
        self._grads: tuple[int, ...] = ()
        self.table = self._moved(self._rows)
        sizes = [triton.cdiv(weight.numel(), BLOCK) for weight in weights]
        numbers = torch.arange(len(weights)).repeat_interleave(torch.tensor(sizes))
        begins = torch.cat([torch.arange(size) * BLOCK for size in sizes])
        self.programs = self._moved(torch.stack([numbers, begins], dim=1))
        self.weight_decays = self._moved(torch.tensor(weight_decays, dtype=torch.float32))

    def set_gradients(self, grads: Sequence[Tensor]) -> None:
        """Set the addresses of the gradients. They rarely change, because torch reuses memory."""
        addresses = tuple(grad.data_ptr() for grad in grads)
        if addresses == self._grads:
            return
        self._rows[:, 1] = torch.tensor([self._place(grad) for grad in grads])
        self.table, self._grads = self._moved(self._rows), addresses

    def _place(self, tensor: Tensor) -> int:
        return _distance(tensor, self.origin)

    def _moved(self, tensor: Tensor) -> Tensor:
        if self._device.type != "cuda":
            return tensor.clone()
        return tensor.pin_memory().to(self._device, non_blocking=True)


def _distance(tensor: Tensor, origin: Tensor) -> int:
    """Return the distance between two tensors in memory, in elements."""
    return (tensor.data_ptr() - origin.data_ptr()) // tensor.itemsize


def are_aligned(tensors: Sequence[Tensor]) -> bool:
    """Return whether the kernel can read all of the tensors."""
    return all(tensor.data_ptr() % ALIGNMENT == 0 and tensor.is_contiguous() for tensor in tensors)


def adamw(
    tables: Tables,
    steps: Tensor,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    clip: Tensor,
    skip: Tensor,
) -> None:
    """Update all weights of the tables, their moments and copies.

    steps: step of each weight, counted from 1. clip: factor of the gradients. skip: 1 if nothing is to change. All are
    float32 on the device.
    """
    _adamw[(len(tables.programs),)](
        tables.origin,
        tables.copy_origin,
        tables.table,
        tables.programs,
        tables.weight_decays,
        steps,
        clip,
        skip,
        lr,
        1 - betas[0],
        1 - betas[1],
        math.log2(betas[0]) if betas[0] else -math.inf,
        math.log2(betas[1]) if betas[1] else -math.inf,
        eps,
        COLUMNS,
        NO_COPY,
        BLOCK,
        num_warps=8,
    )


@triton.jit
def _adamw(
    origin_ptr,
    copy_origin_ptr,
    table_ptr,
    programs_ptr,
    weight_decays_ptr,
    steps_ptr,
    clip_ptr,
    skip_ptr,
    lr,
    one_minus_beta1,
    one_minus_beta2,
    log2_beta1,
    log2_beta2,
    eps,
    COLUMNS: tl.constexpr,
    NO_COPY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    if tl.load(skip_ptr) == 0.0:
        number = tl.load(programs_ptr + 2 * tl.program_id(0))
        begin = tl.load(programs_ptr + 2 * tl.program_id(0) + 1)
        row_ptr = table_ptr + number * COLUMNS
        size = tl.load(row_ptr + 5) - begin
        weight_ptr = origin_ptr + tl.multiple_of(tl.load(row_ptr) + begin, 4)
        grad_ptr = origin_ptr + tl.multiple_of(tl.load(row_ptr + 1) + begin, 4)
        first_ptr = origin_ptr + tl.multiple_of(tl.load(row_ptr + 2) + begin, 4)
        second_ptr = origin_ptr + tl.multiple_of(tl.load(row_ptr + 3) + begin, 4)
        copy_place = tl.load(row_ptr + 4)
        copy_ptr = copy_origin_ptr + tl.multiple_of(copy_place + begin, 8)
        step = tl.load(steps_ptr + number)
        rate = lr / (1.0 - tl.exp2(step * log2_beta1))
        root_bias = tl.sqrt(1.0 - tl.exp2(step * log2_beta2))
        kept = 1.0 - lr * tl.load(weight_decays_ptr + number)
        clip = tl.load(clip_ptr)
        has_copy = copy_place != NO_COPY
        # A mask that may end anywhere would prevent reading 16 bytes at a time, so only the last block has one.
        if size >= BLOCK:
            _update(
                *(weight_ptr, grad_ptr, first_ptr, second_ptr, copy_ptr, has_copy, None),
                *(clip, rate, root_bias, kept, one_minus_beta1, one_minus_beta2, eps),
                BLOCK,
            )
        else:
            _update(
                *(weight_ptr, grad_ptr, first_ptr, second_ptr, copy_ptr, has_copy, tl.arange(0, BLOCK) < size),
                *(clip, rate, root_bias, kept, one_minus_beta1, one_minus_beta2, eps),
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
    kept,
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
    weight = weight * kept - rate * first / (tl.sqrt(second) / root_bias + eps)
    tl.store(first_ptr + place, first, mask=inside)
    tl.store(second_ptr + place, second, mask=inside)
    tl.store(weight_ptr + place, weight, mask=inside)
    if has_copy:
        tl.store(copy_ptr + place, weight.to(tl.bfloat16), mask=inside)
