"""The cross-entropy of logits, and its gradient, which is written over the logits or as 8-bit floats.

A program handles one row in two passes: the sum of exponentials, then the probabilities. A row of 50,304 logits takes
100 KB, and few rows are in work at a time, so the second pass finds them in the cache of the GPU. So logits are read
from memory once and gradients are written once.

Shapes: C tokens, V columns of the logits, of which those from `vocab_size` on are padding.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from gristmill.lm.data.batch import IGNORED
from gristmill.lm.kernels.float8 import LARGEST

__all__ = ["cross_entropy", "plain_cross_entropy"]

# Columns at a time, and warps per program. The programs of wide rows are large, so that few rows compete for the cache.
# More small programs are faster if all of their rows fit into it: 0.69 instead of 1.00 ms for 10,000 columns.
BLOCK, NUM_WARPS = 2048, 8
WIDE_BLOCK, WIDE_NUM_WARPS = 4096, 32
WIDE = 16_384  # columns


def plain_cross_entropy(
    logits_CV: Tensor, targets_C: Tensor, *, vocab_size: int, factor: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return (the loss of each token, `factor` times the gradient of their sum by the logits), float32."""
    with torch.enable_grad():
        leaf_CV = logits_CV.detach().float().requires_grad_()
        losses_C = F.cross_entropy(leaf_CV[:, :vocab_size], targets_C, ignore_index=IGNORED, reduction="none")
        (grad_CV,) = torch.autograd.grad(losses_C.sum(), leaf_CV)
    return losses_C.detach(), grad_CV * factor


def cross_entropy(
    logits_CV: Tensor,
    targets_C: Tensor,
    losses_C: Tensor,
    *,
    vocab_size: int,
    grad_CV: Tensor | None = None,
    factor: float = 1.0,
) -> None:
    """Write the loss of each token to `losses_C`, 0 for targets of -100, and `factor` times its gradient to `grad_CV`.

    grad_CV: the logits themselves, or a matrix of 8-bit floats. None: no gradient. `factor` must keep the gradient,
    which is between -factor and factor, within the range of 8-bit floats.
    """
    is_small = grad_CV is not None and grad_CV.dtype in LARGEST
    block, num_warps = (WIDE_BLOCK, WIDE_NUM_WARPS) if vocab_size > WIDE else (BLOCK, NUM_WARPS)
    _cross_entropy[(len(logits_CV),)](
        logits_CV,
        logits_CV if grad_CV is None else grad_CV,
        targets_C,
        losses_C,
        logits_CV.stride(0),
        logits_CV.stride(0) if grad_CV is None else grad_CV.stride(0),
        factor,
        math.log2(factor),
        vocab_size,
        logits_CV.shape[1],
        vocab_size // block * block,
        block,
        IGNORED,
        grad_CV is not None,
        is_small,
        num_warps=num_warps,
    )


@triton.jit
def _stored(ptr, mask, value, IS_FLOAT8: tl.constexpr):
    """Store gradients, which need no saturation."""
    if IS_FLOAT8:
        tl.store(ptr, value.to(tl.float8e5), mask=mask)
    else:
        tl.store(ptr, value.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def _cross_entropy(
    logits_ptr,
    grad_ptr,
    targets_ptr,
    losses_ptr,
    logits_stride,
    grad_stride,
    factor,
    log2_factor,
    VOCAB: tl.constexpr,
    WIDTH: tl.constexpr,
    WHOLE: tl.constexpr,  # columns in whole blocks
    BLOCK: tl.constexpr,
    IGNORED: tl.constexpr,
    HAS_GRADIENT: tl.constexpr,
    IS_FLOAT8: tl.constexpr,
):
    LOG2E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * logits_stride
    grad_ptr += row * grad_stride
    target = tl.load(targets_ptr + row)
    is_counted = target != IGNORED
    is_known = (target >= 0) & (target < VOCAB)
    # A target outside of the vocabulary makes the loss NaN, which stops a run.
    of_target = tl.load(logits_ptr + target, mask=is_counted & is_known, other=float("nan")).to(tl.float32)
    column = tl.arange(0, BLOCK)

    # The sum needs no exact maximum: any number close to the largest logit prevents an overflow. That of the first
    # block nearly always is; a loop without a reduction in it is much faster.
    first = tl.load(logits_ptr + column, mask=column < VOCAB, other=-float("inf")).to(tl.float32) * LOG2E
    shift = tl.maximum(tl.max(first, 0), -1e30)
    sums = tl.exp2(first - shift)
    for begin in range(BLOCK, WHOLE, BLOCK):
        x = tl.load(logits_ptr + begin + column).to(tl.float32) * LOG2E
        sums += tl.exp2(x - shift)
    if (WHOLE < VOCAB) & (WHOLE > 0):
        x = tl.load(logits_ptr + WHOLE + column, mask=WHOLE + column < VOCAB, other=-float("inf")).to(tl.float32)
        sums += tl.exp2(x * LOG2E - shift)
    total = tl.sum(sums, 0)
    if total == float("inf"):  # a logit is 88 nats above all of the first block
        total = 0.0
        for begin in range(0, VOCAB, BLOCK):
            x = tl.load(logits_ptr + begin + column, mask=begin + column < VOCAB, other=-float("inf"))
            x = x.to(tl.float32) * LOG2E
            top = tl.maximum(shift, tl.max(x, 0))
            total = total * tl.exp2(shift - top) + tl.sum(tl.exp2(x - top), 0)
            shift = top
    log2_total = shift + tl.log2(total)
    tl.store(losses_ptr + row, tl.where(is_counted, log2_total / LOG2E - of_target, 0.0))

    if HAS_GRADIENT:
        minus = tl.where(is_counted, log2_factor - log2_total, -float("inf"))
        grad_target = (tl.exp2(of_target * LOG2E - log2_total) - 1.0) * factor
        tl.debug_barrier()  # all threads have read the logit of the target before it is overwritten
        for begin in range(0, WHOLE, BLOCK):
            x = tl.load(logits_ptr + begin + column).to(tl.float32) * LOG2E
            _stored(grad_ptr + begin + column, None, tl.exp2(x + minus), IS_FLOAT8)
        for begin in range(WHOLE, WIDTH, BLOCK):
            x = tl.load(logits_ptr + begin + column, mask=begin + column < VOCAB, other=-float("inf")).to(tl.float32)
            _stored(grad_ptr + begin + column, begin + column < WIDTH, tl.exp2(x * LOG2E + minus), IS_FLOAT8)
        tl.debug_barrier()
        _stored(grad_ptr + target, is_counted & is_known, grad_target, IS_FLOAT8)
