"""SwiGLU, silu(gate) * up, and its gradient.

Gate and up are the two halves of one matrix, N x 2F. The backward kernel writes the gradients of both into one such
matrix.

Shapes: N tokens, F d_ff.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from gristmill.lm.kernels.float8 import E4M3, Site, largest_of, to_float8

__all__ = ["SwigluGradient", "plain_swiglu", "swiglu", "swiglu_gradient"]


def plain_swiglu(gate_up_NF: Tensor) -> Tensor:
    """Return silu(gate) * up."""
    gate_NF, up_NF = gate_up_NF.float().chunk(2, dim=-1)
    return (F.silu(gate_NF) * up_NF).to(gate_up_NF.dtype)


def _tile(*, is_small: bool) -> tuple[int, int, int]:
    """Return the rows and columns of a program, and its warps.

    Long rows are read and written fastest. A larger tile saves conversions to 8-bit floats from waiting for memory.
    """
    return (32, 128, 8) if is_small else (4, 512, 4)


def swiglu(gate_up_NF: Tensor, *, site: Site | None = None, keeps_wide: bool = True) -> tuple[Tensor | None, ...]:
    """Return (h in the dtype of `gate_up`, h in 8-bit floats). Without a site, or `keeps_wide`, None stands for it."""
    num_tokens, width = gate_up_NF.shape[0], gate_up_NF.shape[1] // 2
    wide_NF = gate_up_NF.new_empty(num_tokens, width) if keeps_wide else None
    small_NF = None if site is None else gate_up_NF.new_empty((num_tokens, width), dtype=site.dtype)
    rows, columns, num_warps = _tile(is_small=site is not None)
    _forward[(triton.cdiv(num_tokens, rows), triton.cdiv(width, columns))](
        gate_up_NF,
        gate_up_NF if wide_NF is None else wide_NF,
        gate_up_NF if small_NF is None else small_NF,
        gate_up_NF if site is None else site.scale,
        gate_up_NF if site is None else site.largest,
        num_tokens,
        width,
        rows,
        columns,
        keeps_wide,
        site is not None,
        site is not None and site.dtype == E4M3,
        num_warps=num_warps,
    )
    return wide_NF, small_NF


@triton.jit
def _forward(
    gate_up_ptr,
    wide_ptr,
    small_ptr,
    scale_ptr,
    largest_ptr,
    num_tokens,
    width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HAS_WIDE: tl.constexpr,
    HAS_FLOAT8: tl.constexpr,
    IS_E4M3: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < num_tokens) & (column < width)
    gate_ptr = gate_up_ptr + row * (2 * width) + column
    gate = tl.load(gate_ptr, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_ptr + width, mask=inside, other=0.0).to(tl.float32)
    product = gate * tl.sigmoid(gate) * up
    place = row * width + column
    if HAS_WIDE:
        tl.store(wide_ptr + place, product.to(wide_ptr.dtype.element_ty), mask=inside)
    if HAS_FLOAT8:
        tl.store(small_ptr + place, to_float8(product, tl.load(scale_ptr), IS_E4M3), mask=inside)
        tl.atomic_max(largest_ptr, largest_of(product))


class SwigluGradient(NamedTuple):
    """The result of `swiglu_gradient`; None for what was not requested."""

    gate_up_NF: Tensor | None
    float8_NF: Tensor | None


def swiglu_gradient(
    gate_up_NF: Tensor, grad_NF: Tensor, *, site: Site | None = None, keeps_wide: bool = True
) -> SwigluGradient:
    """Return the gradient of gate and up from that of h.

    site: also return it in 8-bit floats. keeps_wide: whether it is needed in the dtype of `gate_up`.
    """
    num_tokens, width = grad_NF.shape
    wide_NF = torch.empty_like(gate_up_NF) if keeps_wide else None
    small_NF = None if site is None else torch.empty_like(gate_up_NF, dtype=site.dtype)
    rows, columns, num_warps = _tile(is_small=site is not None)
    _backward[(triton.cdiv(num_tokens, rows), triton.cdiv(width, columns))](
        gate_up_NF,
        grad_NF,
        gate_up_NF if wide_NF is None else wide_NF,
        gate_up_NF if small_NF is None else small_NF,
        gate_up_NF if site is None else site.scale,
        gate_up_NF if site is None else site.largest,
        num_tokens,
        width,
        rows,
        columns,
        keeps_wide,
        site is not None,
        site is not None and site.dtype == E4M3,
        num_warps=num_warps,
    )
    return SwigluGradient(wide_NF, small_NF)


@triton.jit
def _backward(
    gate_up_ptr,
    grad_ptr,
    wide_ptr,
    small_ptr,
    scale_ptr,
    largest_ptr,
    num_tokens,
    width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HAS_WIDE: tl.constexpr,
    HAS_FLOAT8: tl.constexpr,
    IS_E4M3: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < num_tokens) & (column < width)
    gate_place = row * (2 * width) + column
    place = row * width + column
    gate = tl.load(gate_up_ptr + gate_place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + gate_place + width, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + place, mask=inside, other=0.0).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    grad_gate = grad * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))
    grad_up = grad * (gate * sigmoid)
    if HAS_WIDE:
        tl.store(wide_ptr + gate_place, grad_gate.to(wide_ptr.dtype.element_ty), mask=inside)
        tl.store(wide_ptr + gate_place + width, grad_up.to(wide_ptr.dtype.element_ty), mask=inside)
    if HAS_FLOAT8:
        scale = tl.load(scale_ptr)
        tl.store(small_ptr + gate_place, to_float8(grad_gate, scale, IS_E4M3), mask=inside)
        tl.store(small_ptr + gate_place + width, to_float8(grad_up, scale, IS_E4M3), mask=inside)
        tl.atomic_max(largest_ptr, tl.maximum(largest_of(grad_gate), largest_of(grad_up)))
