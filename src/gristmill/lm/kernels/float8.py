"""8-bit floats: numbers times a scale, rounded and saturated, and transposes of such matrices.

A tensor is stored as round(x * scale) in one of two formats. e4m3 has 3 bits of fraction and reaches 448; it holds
activations and weights. e5m2 has 2 bits of fraction and reaches 57,344; it holds gradients, whose range is wide. One
scale per tensor is chosen before the step (scales.py). Larger numbers saturate, because both formats would make them
NaN or infinite, and the kernel records the largest number, from which the next scale is computed. A number that is not
finite becomes NaN, so that it reaches the loss or the gradients, which stops the run.

The matrix units multiply only rows by rows: each operand must be contiguous along the dimension that is summed. So the
products of the backward pass need transposes.

Shapes: R x C matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["E4M3", "E5M2", "LARGEST", "Site", "plain_float8", "quantized", "to_float8", "transposed"]

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LARGEST = {E4M3: 448.0, E5M2: 57344.0}
"""The largest finite number of each format."""

TILE = 64


@dataclass(frozen=True)
class Site:
    """A place of the model whose tensor is converted in every step. The tensors have one number each, on the device."""

    dtype: torch.dtype
    scale: Tensor
    inverse: Tensor
    """1 / scale, for the products."""
    largest: Tensor
    """Largest absolute number of this step so far. Kernels raise it."""


def plain_float8(x: Tensor, site: Site) -> Tensor:
    """Return `x` in 8-bit floats, and record its largest number."""
    site.largest.copy_(torch.maximum(site.largest, x.detach().abs().max()))
    limit = LARGEST[site.dtype]
    scaled = (x.float() * site.scale).clamp(-limit, limit)
    return torch.where(x.isfinite(), scaled, math.nan).to(site.dtype)


@triton.jit
def to_float8(x, scale, IS_E4M3: tl.constexpr):
    """Return float32 numbers times `scale` as 8-bit floats, saturated; NaN for those that are not finite."""
    limit: tl.constexpr = 448.0 if IS_E4M3 else 57344.0
    scaled = tl.minimum(tl.maximum(x * scale, -limit), limit)
    # subtle: minimum and maximum of a GPU ignore NaN, so without this, NaN would become the smallest number.
    scaled = tl.where(tl.abs(x) < float("inf"), scaled, float("nan"))
    if IS_E4M3:
        return scaled.to(tl.float8e4nv)
    else:
        return scaled.to(tl.float8e5)


@triton.jit
def largest_of(x):
    """Return the largest absolute number of a two-dimensional block."""
    return tl.max(tl.max(tl.abs(x), 1), 0)


def quantized(x_RC: Tensor, site: Site, *, rows: bool = True, columns: bool = False) -> tuple[Tensor | None, ...]:
    """Return (`x` in 8-bit floats, its transpose), and record its largest number.

    rows, columns: whether the matrix and its transpose are needed; the result is None for the other one.
    """
    num_rows, num_columns = x_RC.shape
    if rows and columns and x_RC.dtype == torch.float32:
        # subtle: compiled by Triton 3.6, a kernel that reads float32 and stores both writes every fourth column of the
        # matrix wrong in its transpose. Tests on a GPU compare all bytes.
        straight, _ = quantized(x_RC, site)
        return straight, transposed(cast(Tensor, straight))
    straight = torch.empty(x_RC.shape, device=x_RC.device, dtype=site.dtype) if rows else None
    turned = torch.empty((num_columns, num_rows), device=x_RC.device, dtype=site.dtype) if columns else None
    _quantize[(triton.cdiv(num_rows, TILE), triton.cdiv(num_columns, TILE))](
        x_RC,
        x_RC if straight is None else straight,
        x_RC if turned is None else turned.view(torch.uint8),
        site.scale,
        site.largest,
        num_rows,
        num_columns,
        TILE,
        rows,
        columns,
        site.dtype == E4M3,
        num_warps=4,
    )
    return straight, turned


@triton.jit
def _quantize(
    x_ptr,
    straight_ptr,
    turned_ptr,
    scale_ptr,
    largest_ptr,
    num_rows,
    num_columns,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    IS_E4M3: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = (row < num_rows)[:, None] & (column < num_columns)[None, :]
    place = row[:, None] * num_columns + column[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    small = to_float8(x, tl.load(scale_ptr), IS_E4M3)
    if ROWS:
        tl.store(straight_ptr + place, small, mask=inside)
    if COLUMNS:
        turned_place = column[:, None] * num_rows + row[None, :]
        tl.store(turned_ptr + turned_place, tl.trans(small.to(tl.uint8, bitcast=True)), mask=tl.trans(inside))
    tl.atomic_max(largest_ptr, largest_of(x))


def transposed(x_RC: Tensor) -> Tensor:
    """Return the transpose of a matrix of 8-bit floats, contiguous."""
    num_rows, num_columns = x_RC.shape
    turned = torch.empty((num_columns, num_rows), device=x_RC.device, dtype=x_RC.dtype)
    tile = 128
    _transpose[(triton.cdiv(num_rows, tile), triton.cdiv(num_columns, tile))](
        x_RC.view(torch.uint8), turned.view(torch.uint8), num_rows, num_columns, tile, num_warps=8
    )
    return turned


@triton.jit
def _transpose(x_ptr, turned_ptr, num_rows, num_columns, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = (row < num_rows)[:, None] & (column < num_columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * num_columns + column[None, :], mask=inside, other=0)
    tl.store(turned_ptr + column[:, None] * num_rows + row[None, :], tl.trans(x), mask=tl.trans(inside))
