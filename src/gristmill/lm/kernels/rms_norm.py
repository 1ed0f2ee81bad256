"""Addition to the residual stream and the RMSNorm of the sum, in one pass, and its gradient.

    stream = x + delta                                          what the next layer adds to
    normed = stream / sqrt(mean(stream^2) + eps) * weight       what the next matrix multiplies

The kernel exists so that a step needs no compilation, and because it can write `normed` in 8-bit floats at once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gristmill.lm.kernels.float8 import E4M3, Site, largest_of, to_float8

__all__ = ["Normed", "add_rms_norm", "plain_add_rms_norm", "rms_norm_gradient"]

NARROW = 512  # columns, up to which a program handles twice as many tokens
ROWS = 4  # tokens per program of the forward kernel
ROWS_BACKWARD = 2
# Programs of the backward kernel per multiprocessor. Each adds the gradient of the weight over all its tokens.
PROGRAMS_PER_MULTIPROCESSOR = 8


class Normed(NamedTuple):
    """The result of `add_rms_norm`."""

    stream_ND: Tensor
    normed_ND: Tensor | None
    float8_ND: Tensor | None
    """`normed` in 8-bit floats, if a site was given."""
    factor_N: Tensor
    """1 / root-mean-square of each token, for the gradient."""


def plain_add_rms_norm(x_ND: Tensor, delta_ND: Tensor | None, weight_D: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    """Return (stream, normed)."""
    stream_ND = x_ND if delta_ND is None else x_ND + delta_ND
    wide_ND = stream_ND.float()
    normed_ND = wide_ND * torch.rsqrt(wide_ND.square().mean(-1, keepdim=True) + eps) * weight_D
    return stream_ND, normed_ND.to(x_ND.dtype)


def add_rms_norm(
    x_ND: Tensor,
    delta_ND: Tensor | None,
    weight_D: Tensor,
    *,
    eps: float,
    site: Site | None = None,
    keeps_normed: bool = True,
) -> Normed:
    """Return the sum, its norm, and what the gradient needs. Without `delta`, the stream is `x` itself.

    site: also return the norm in 8-bit floats. keeps_normed: whether the norm is needed in the dtype of `x`.
    """
    num_tokens, width = x_ND.shape
    stream_ND = x_ND if delta_ND is None else torch.empty_like(x_ND)
    normed_ND = torch.empty_like(x_ND) if keeps_normed else None
    float8_ND = None if site is None else torch.empty(x_ND.shape, device=x_ND.device, dtype=site.dtype)
    factor_N = torch.empty(num_tokens, device=x_ND.device, dtype=torch.float32)
    rows = ROWS * (2 if width <= NARROW and site is not None else 1)
    _forward[(triton.cdiv(num_tokens, rows),)](
        x_ND,
        x_ND if delta_ND is None else delta_ND,
        weight_D,
        stream_ND,
        x_ND if normed_ND is None else normed_ND,
        x_ND if float8_ND is None else float8_ND,
        factor_N,
        factor_N if site is None else site.scale,
        factor_N if site is None else site.largest,
        num_tokens,
        eps,
        width,
        triton.next_power_of_2(width),
        rows,
        delta_ND is not None,
        keeps_normed,
        site is not None,
        site is not None and site.dtype == E4M3,
        num_warps=4,
    )
    return Normed(stream_ND, normed_ND, float8_ND, factor_N)


@triton.jit
def _forward(
    x_ptr,
    delta_ptr,
    weight_ptr,
    stream_ptr,
    normed_ptr,
    float8_ptr,
    factor_ptr,
    scale_ptr,
    largest_ptr,
    num_tokens,
    eps,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    HAS_DELTA: tl.constexpr,
    HAS_NORMED: tl.constexpr,
    HAS_FLOAT8: tl.constexpr,
    IS_E4M3: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < num_tokens)[:, None] & (column < WIDTH)[None, :]
    place = row[:, None] * WIDTH + column[None, :]
    stream = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
    if HAS_DELTA:
        stream += tl.load(delta_ptr + place, mask=inside, other=0.0).to(tl.float32)
        # subtle: the norm is that of the rounded stream, which the next layer and the gradient read.
        rounded = stream.to(stream_ptr.dtype.element_ty)
        tl.store(stream_ptr + place, rounded, mask=inside)
        stream = rounded.to(tl.float32)
    factor = tl.rsqrt(tl.sum(stream * stream, 1) / WIDTH + eps)
    tl.store(factor_ptr + row, factor, mask=row < num_tokens)
    weight = tl.load(weight_ptr + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    normed = stream * factor[:, None] * weight[None, :]
    if HAS_NORMED:
        tl.store(normed_ptr + place, normed.to(normed_ptr.dtype.element_ty), mask=inside)
    if HAS_FLOAT8:
        tl.store(float8_ptr + place, to_float8(normed, tl.load(scale_ptr), IS_E4M3), mask=inside)
        tl.atomic_max(largest_ptr, largest_of(normed))


def rms_norm_gradient(
    grad_normed_ND: Tensor,
    stream_ND: Tensor,
    weight_D: Tensor,
    factor_N: Tensor,
    *,
    grad_stream_ND: Tensor | None = None,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of (the stream, which is that of `x` and of `delta`; the weight).

    grad_stream_ND: gradient that reaches the stream elsewhere; it is added. scale: a number on the device by which
    `grad_normed_ND` is multiplied first.
    """
    num_tokens, width = stream_ND.shape
    rows = ROWS_BACKWARD * (2 if width <= NARROW else 1)
    num_programs = min(_num_programs(stream_ND.device), triton.cdiv(num_tokens, rows))
    grad_ND = torch.empty_like(stream_ND)
    partial_PD = torch.empty(num_programs, width, device=stream_ND.device, dtype=torch.float32)
    _backward[(num_programs,)](
        grad_normed_ND,
        stream_ND,
        weight_D,
        factor_N,
        grad_ND if grad_stream_ND is None else grad_stream_ND,
        factor_N if scale is None else scale,
        grad_ND,
        partial_PD,
        num_tokens,
        num_programs,
        width,
        triton.next_power_of_2(width),
        rows,
        grad_stream_ND is not None,
        scale is not None,
        num_warps=2,
    )
    return grad_ND, partial_PD.sum(0)


def _num_programs(device: torch.device) -> int:
    if device.type != "cuda":
        return PROGRAMS_PER_MULTIPROCESSOR
    return PROGRAMS_PER_MULTIPROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def _backward(
    grad_normed_ptr,
    stream_ptr,
    weight_ptr,
    factor_ptr,
    grad_stream_ptr,
    scale_ptr,
    grad_ptr,
    partial_ptr,
    num_tokens,
    num_programs,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    HAS_GRAD_STREAM: tl.constexpr,
    HAS_SCALE: tl.constexpr,
):
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    in_width = column < WIDTH
    weight = tl.load(weight_ptr + column, mask=in_width, other=0.0).to(tl.float32)
    grad_weight = tl.zeros([BLOCK], tl.float32)
    for block in range(program, tl.cdiv(num_tokens, ROWS), num_programs):
        row = (block * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        in_rows = row < num_tokens
        inside = in_rows[:, None] & in_width[None, :]
        place = row[:, None] * WIDTH + column[None, :]
        grad_normed = tl.load(grad_normed_ptr + place, mask=inside, other=0.0).to(tl.float32)
        if HAS_SCALE:
            grad_normed *= tl.load(scale_ptr)
        stream = tl.load(stream_ptr + place, mask=inside, other=0.0).to(tl.float32)
        factor = tl.load(factor_ptr + row, mask=in_rows, other=0.0)
        unit = stream * factor[:, None]
        grad_weight += tl.sum(grad_normed * unit, 0)
        grad_unit = grad_normed * weight[None, :]
        along = tl.sum(grad_unit * unit, 1) / WIDTH
        grad = (grad_unit - unit * along[:, None]) * factor[:, None]
        if HAS_GRAD_STREAM:
            grad += tl.load(grad_stream_ptr + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(grad_ptr + place, grad.to(grad_ptr.dtype.element_ty), mask=inside)
    tl.store(partial_ptr + program * WIDTH + column, grad_weight, mask=in_width)
