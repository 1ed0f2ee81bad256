"""Rotary positions of queries and keys, with or without their norm, and the gradient of queries, keys and values.

The product of a layer gives q, k and v in one matrix, N x (H + 2G) K. The forward kernel rotates q and k; with a norm,
it first divides each head by its root-mean-square and multiplies it by a weight. The attention kernel then reads views
of the result. Its gradients come back as three tensors, and the backward kernel turns them back and packs them into one
matrix, which two products read. It can write that matrix in 8-bit floats.

Pairs of neighbours are rotated, as in `lm/models/gpt/attention.py`: (a, b) becomes (a cos - b sin, b cos + a sin).

Shapes: B sequences of T tokens, N = B T, H query heads and G key and value heads of size K, A = H + 2G.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from gristmill.lm.kernels.float8 import E4M3, Site, largest_of, to_float8

__all__ = ["Heads", "plain_rotated", "rotated", "rotation_gradient"]

ROWS = 32  # tokens per program


@dataclass(frozen=True)
class Heads:
    """The heads of a layer, and the tables of their rotation: T x K / 2 each, float32."""

    num_queries: int
    num_keys: int
    size: int
    cos_TK: Tensor
    sin_TK: Tensor
    eps: float = 0.0
    """Epsilon of the norm of queries and keys."""

    @property
    def width(self) -> int:
        """Columns of the matrix of q, k and v."""
        return (self.num_queries + 2 * self.num_keys) * self.size


def plain_rotated(
    qkv_NA: Tensor, heads: Heads, *, num_tokens: int, norm_K2: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (q, k, v), each B x T x heads x K. `norm_K2`: weights of the norms of queries and keys."""
    qkv = qkv_NA.unflatten(-1, (-1, heads.size)).unflatten(0, (-1, num_tokens))
    q, k, v = qkv.split([heads.num_queries, heads.num_keys, heads.num_keys], dim=2)
    turned = []
    for index, x in enumerate((q.float(), k.float())):
        if norm_K2 is not None:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + heads.eps) * norm_K2[index]
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = heads.cos_TK[:num_tokens, None], heads.sin_TK[:num_tokens, None]
        turned.append(torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2).to(qkv_NA.dtype))
    return turned[0], turned[1], v


def rotated(
    qkv_NA: Tensor, heads: Heads, *, num_tokens: int, norm_K2: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (q, k, v), each B x T x heads x K, as views. `num_tokens` is T.

    Without a norm, q and k are rotated in place. With one, `qkv` is not changed, because the gradient needs it.
    """
    h, g, size = heads.num_queries, heads.num_keys, heads.size
    result = qkv_NA if norm_K2 is None else torch.empty_like(qkv_NA[:, : (h + g) * size])
    num_rows = qkv_NA.shape[0]
    q_norm_K, k_norm_K = (heads.cos_TK, heads.cos_TK) if norm_K2 is None else norm_K2
    _forward[(triton.cdiv(num_rows, ROWS),)](
        qkv_NA,
        result,
        q_norm_K,
        k_norm_K,
        heads.cos_TK,
        heads.sin_TK,
        num_rows,
        num_tokens,
        heads.eps,
        qkv_NA.stride(0),
        result.stride(0),
        ROWS,
        size,
        h,
        g,
        norm_K2 is not None,
        num_warps=4,
    )
    qk = result[:, : (h + g) * size].view(-1, num_tokens, h + g, size)
    v = qkv_NA[:, (h + g) * size :].view(-1, num_tokens, g, size)
    return qk[:, :, :h], qk[:, :, h:], v


@triton.jit
def _turned(x, cos, sin, ROWS: tl.constexpr, SIZE: tl.constexpr):
    a, b = tl.split(tl.reshape(x, (ROWS, SIZE // 2, 2)))
    return tl.reshape(tl.join(a * cos - b * sin, b * cos + a * sin), (ROWS, SIZE))


@triton.jit
def _forward(
    qkv_ptr,
    result_ptr,
    q_norm_ptr,
    k_norm_ptr,
    cos_ptr,
    sin_ptr,
    num_rows,
    num_tokens,
    eps,
    qkv_stride,
    result_stride,
    ROWS: tl.constexpr,
    SIZE: tl.constexpr,
    NUM_QUERIES: tl.constexpr,
    NUM_KEYS: tl.constexpr,
    HAS_NORM: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    in_rows = (row < num_rows)[:, None]
    pair = (row % num_tokens)[:, None] * (SIZE // 2) + tl.arange(0, SIZE // 2)[None, :]
    cos = tl.load(cos_ptr + pair)
    sin = tl.load(sin_ptr + pair)
    column = tl.arange(0, SIZE)
    long_row = row.to(tl.int64)[:, None]
    for head in range(NUM_QUERIES + NUM_KEYS):
        place = head * SIZE + column[None, :]
        x = tl.load(qkv_ptr + long_row * qkv_stride + place, mask=in_rows, other=0.0).to(tl.float32)
        if HAS_NORM:
            norm_ptr = q_norm_ptr if head < NUM_QUERIES else k_norm_ptr
            weight = tl.load(norm_ptr + column).to(tl.float32)
            x *= tl.rsqrt(tl.sum(x * x, 1) / SIZE + eps)[:, None] * weight[None, :]
        x = _turned(x, cos, sin, ROWS, SIZE)
        tl.store(result_ptr + long_row * result_stride + place, x.to(result_ptr.dtype.element_ty), mask=in_rows)


@dataclass(frozen=True)
class RotationGradient:
    """The result of `rotation_gradient`."""

    qkv_NA: Tensor | None
    float8_NA: Tensor | None
    norm_K2: tuple[Tensor, Tensor] | None


def rotation_gradient(
    grads: tuple[Tensor, Tensor, Tensor],
    heads: Heads,
    *,
    site: Site | None = None,
    keeps_wide: bool = True,
    normed: tuple[Tensor, Tensor, Tensor] | None = None,
) -> RotationGradient:
    """Return the gradient of the matrix of q, k and v, from those of q, k and v: B x T x heads x K, of any strides.

    site: also return it in 8-bit floats. keeps_wide: whether it is needed in the dtype of the gradients. normed: the
    matrix before the norm of queries and keys, and the two weights; the gradients of the weights are returned too.
    """
    # Heads may have any strides, but the numbers of a head must be contiguous. Some attention kernels return transposes.
    dq, dk, dv = (grad if grad.stride(-1) == 1 else grad.contiguous() for grad in grads)
    batch_size, num_tokens, _, size = dq.shape
    num_rows, device = batch_size * num_tokens, dq.device
    wide = torch.empty(num_rows, heads.width, device=device, dtype=dq.dtype) if keeps_wide else None
    small = None if site is None else torch.empty(num_rows, heads.width, device=device, dtype=site.dtype)
    num_programs = triton.cdiv(num_rows, ROWS)
    has_norm = normed is not None
    partial = torch.empty(2, num_programs if has_norm else 0, size, device=device, dtype=torch.float32)
    qkv_NA, q_norm_K, k_norm_K = (dq, dq, dq) if normed is None else normed
    _backward[(num_programs,)](
        dq,
        dk,
        dv,
        qkv_NA,
        q_norm_K,
        k_norm_K,
        dq if wide is None else wide,
        dq if small is None else small,
        partial,
        heads.cos_TK,
        heads.sin_TK,
        heads.cos_TK if site is None else site.scale,
        heads.cos_TK if site is None else site.largest,
        num_rows,
        num_tokens,
        num_programs,
        heads.eps,
        *dq.stride()[:3],
        *dk.stride()[:3],
        *dv.stride()[:3],
        ROWS,
        size,
        heads.num_queries,
        heads.num_keys,
        has_norm,
        keeps_wide,
        site is not None,
        site is not None and site.dtype == E4M3,
        num_warps=8 if has_norm else 4,
    )
    sums = (partial[0].sum(0), partial[1].sum(0)) if has_norm else None
    return RotationGradient(wide, small, sums)


@triton.jit
def _store(
    grad,
    place,
    in_rows,
    wide_ptr,
    small_ptr,
    scale,
    HAS_WIDE: tl.constexpr,
    HAS_FLOAT8: tl.constexpr,
    IS_E4M3: tl.constexpr,
):
    """Store a block in both forms, and return its largest number."""
    if HAS_WIDE:
        tl.store(wide_ptr + place, grad.to(wide_ptr.dtype.element_ty), mask=in_rows)
    if HAS_FLOAT8:
        tl.store(small_ptr + place, to_float8(grad, scale, IS_E4M3), mask=in_rows)
    return largest_of(grad)


@triton.jit
def _backward(
    dq_ptr,
    dk_ptr,
    dv_ptr,
    qkv_ptr,
    q_norm_ptr,
    k_norm_ptr,
    wide_ptr,
    small_ptr,
    partial_ptr,
    cos_ptr,
    sin_ptr,
    scale_ptr,
    largest_ptr,
    num_rows,
    num_tokens,
    num_programs,
    eps,
    dq_batch,
    dq_token,
    dq_head,
    dk_batch,
    dk_token,
    dk_head,
    dv_batch,
    dv_token,
    dv_head,
    ROWS: tl.constexpr,
    SIZE: tl.constexpr,
    NUM_QUERIES: tl.constexpr,
    NUM_KEYS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HAS_WIDE: tl.constexpr,
    HAS_FLOAT8: tl.constexpr,
    IS_E4M3: tl.constexpr,
):
    WIDTH: tl.constexpr = (NUM_QUERIES + 2 * NUM_KEYS) * SIZE
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    in_rows = (row < num_rows)[:, None]
    token = row % num_tokens
    pair = token[:, None] * (SIZE // 2) + tl.arange(0, SIZE // 2)[None, :]
    cos = tl.load(cos_ptr + pair)
    sin = -tl.load(sin_ptr + pair)
    column = tl.arange(0, SIZE)[None, :]
    batch = (row // num_tokens).to(tl.int64)[:, None]
    token = token.to(tl.int64)[:, None]
    begin = row.to(tl.int64)[:, None] * WIDTH
    scale = 1.0
    if HAS_FLOAT8:
        scale = tl.load(scale_ptr)
    largest = 0.0
    for part in tl.static_range(2):
        if part == 0:
            grad_ptr, norm_ptr = dq_ptr + batch * dq_batch + token * dq_token, q_norm_ptr
            head_stride, first, num_heads = dq_head, 0, NUM_QUERIES
        else:
            grad_ptr, norm_ptr = dk_ptr + batch * dk_batch + token * dk_token, k_norm_ptr
            head_stride, first, num_heads = dk_head, NUM_QUERIES, NUM_KEYS
        grad_weight = tl.zeros([SIZE], tl.float32)
        for head in range(num_heads):
            grad = tl.load(grad_ptr + head * head_stride + column, mask=in_rows, other=0.0).to(tl.float32)
            grad = _turned(grad, cos, sin, ROWS, SIZE)
            place = begin + (first + head) * SIZE + column
            if HAS_NORM:
                x = tl.load(qkv_ptr + place, mask=in_rows, other=0.0).to(tl.float32)
                factor = tl.rsqrt(tl.sum(x * x, 1) / SIZE + eps)[:, None]
                unit = x * factor
                grad_weight += tl.sum(grad * unit, 0)
                grad *= tl.load(norm_ptr + column).to(tl.float32)
                grad = (grad - unit * (tl.sum(grad * unit, 1) / SIZE)[:, None]) * factor
            found = _store(grad, place, in_rows, wide_ptr, small_ptr, scale, HAS_WIDE, HAS_FLOAT8, IS_E4M3)
            largest = tl.maximum(largest, found)
        if HAS_NORM:
            partial_row = part * num_programs + tl.program_id(0)
            tl.store(partial_ptr + partial_row * SIZE + tl.arange(0, SIZE), grad_weight)
    grad_ptr = dv_ptr + batch * dv_batch + token * dv_token
    for head in range(NUM_KEYS):
        grad = tl.load(grad_ptr + head * dv_head + column, mask=in_rows, other=0.0).to(tl.float32)
        place = begin + (NUM_QUERIES + NUM_KEYS + head) * SIZE + column
        found = _store(grad, place, in_rows, wide_ptr, small_ptr, scale, HAS_WIDE, HAS_FLOAT8, IS_E4M3)
        largest = tl.maximum(largest, found)
    if HAS_FLOAT8:
        tl.atomic_max(largest_ptr, largest)
