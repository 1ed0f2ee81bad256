"""The loss of a language model without holding all logits in memory.

For 64 sequences of 1,024 tokens and 50,304 logits each, the logits alone take 6.6 GB in bfloat16, and they are written
and read several times. Here the tokens are processed in parts: logits, softmax, its gradient and the two products of
the backward pass for one part, then for the next. So the forward pass already computes the gradient, and the backward
pass only scales it. The result equals `F.cross_entropy(x @ weight.T, targets)`.

Shapes: N tokens, C of them in a part, D width, V rows of the weight.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gristmill.lm.data.batch import IGNORED

NUM_PARTS = 8


def linear_cross_entropy(
    x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, *, vocab_size: int, num_parts: int = NUM_PARTS
) -> Tensor:
    """Return the mean cross-entropy, in nats, of logits `x @ weight.T` over the targets that are not -100.

    Rows of the weight from `vocab_size` on are padding: they get no probability and no gradient.

    >>> x, weight = torch.randn(6, 4), torch.randn(8, 4)
    >>> targets = torch.tensor([0, 1, 2, 3, 4, -100])
    >>> plain = torch.nn.functional.cross_entropy(x @ weight[:5].T, targets)
    >>> torch.testing.assert_close(linear_cross_entropy(x, weight, targets, vocab_size=5), plain)
    """
    if torch.is_autocast_enabled(x_ND.device.type):
        kind = torch.get_autocast_dtype(x_ND.device.type)
        x_ND, weight = x_ND.to(kind), weight_VD.to(kind)
    else:
        weight = weight_VD
    # Checked here, because inside a Function a parameter seems to need a gradient even under no_grad.
    with_gradient = torch.is_grad_enabled()
    loss = _LinearCrossEntropy.apply(x_ND, weight, targets_N, vocab_size, num_parts, with_gradient)  # type: ignore[no-untyped-call]
    return cast(Tensor, loss)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        vocab_size: int,
        num_parts: int,
        with_gradient: bool,
    ) -> Tensor:
        of_x, of_weight = (with_gradient and needed for needed in ctx.needs_input_grad[:2])
        loss = torch.zeros((), device=x_ND.device, dtype=torch.float32)
        grads_x_CD = []
        # In float32, because a bfloat16 sum over many parts would lose small ones.
        grad_weight_VD = torch.zeros(weight_VD.shape, device=x_ND.device, dtype=torch.float32) if of_weight else None
        for x_CD, targets_C in zip(x_ND.chunk(num_parts), targets_N.chunk(num_parts), strict=True):
            logits_CV = x_CD @ weight_VD.T
            part_loss, grad_CV = _loss_and_gradient(logits_CV, targets_C, vocab_size, of_x or of_weight)
            loss = loss + part_loss
            if grad_CV is not None and of_x:
                grads_x_CD.append(grad_CV @ weight_VD)
            if grad_CV is not None and grad_weight_VD is not None:
                grad_weight_VD = grad_weight_VD + grad_CV.T @ x_CD
        scale = 1 / (targets_N != IGNORED).sum().clamp(min=1)
        ctx.save_for_backward(torch.cat(grads_x_CD) if of_x else None, grad_weight_VD, scale)
        ctx.weight_dtype = weight_VD.dtype
        return loss * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        grad_x_ND, grad_weight_VD, scale = ctx.saved_tensors
        # The mean is taken here, not earlier: in float16, 1 / N times a small probability underflows to 0, and no loss
        # scale could restore it.
        factor = grad_loss * scale
        grad_x = None if grad_x_ND is None else (grad_x_ND * factor).to(grad_x_ND.dtype)
        grad_weight = None if grad_weight_VD is None else (grad_weight_VD * factor).to(ctx.weight_dtype)
        return grad_x, grad_weight, None, None, None, None


def _loss_and_gradient(
    logits_CV: Tensor, targets_C: Tensor, vocab_size: int, with_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the summed loss of some tokens and, if needed, its gradient by their logits, in float32 in one kernel.

    Work is done per token instead of per logit where possible, because the kernel is bound by arithmetic, not by
    memory. (Comparing every column with the target, and two divisions, took a third longer.)
    """
    wide_CV = logits_CV.float()
    if vocab_size < logits_CV.shape[1]:
        columns_V = torch.arange(logits_CV.shape[1], device=logits_CV.device)
        wide_CV = torch.where(columns_V < vocab_size, wide_CV, -torch.inf)
    top_C1 = wide_CV.amax(-1, keepdim=True)
    powers_CV = (wide_CV - top_C1).exp()
    sums_C1 = powers_CV.sum(-1, keepdim=True)
    targets_C1 = targets_C.clamp(min=0)[:, None]
    counted_C1 = (targets_C != IGNORED)[:, None].float()
    chosen_C1 = logits_CV.gather(-1, targets_C1).float()
    losses_C1 = (sums_C1.log() + top_C1 - chosen_C1) * counted_C1
    if not with_gradient:
        return losses_C1.sum(), None
    grad_CV = (powers_CV * (counted_C1 / sums_C1)).to(logits_CV.dtype)
    # The gradient of the target is its probability - 1. In bfloat16, a probability above 0.998 would be rounded to 1
    # before the subtraction.
    of_targets_C1 = torch.expm1(-losses_C1).to(logits_CV.dtype)
    return losses_C1.sum(), grad_CV.scatter(-1, targets_C1, of_targets_C1)
