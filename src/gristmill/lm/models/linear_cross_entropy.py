"""The loss of a language model without ever holding all its logits.

For 64 sequences of 1,024 tokens and 50,304 logits each, the logits alone are 6.6 GB in bfloat16, and they are written
and read several times over. Here a part of the tokens at a time goes all the way: logits, their softmax, its gradient,
and the two products of the backward pass, before the next part begins. The gradient is so known in the forward pass;
the backward pass only scales it. The numbers are those of `F.cross_entropy(x @ weight.T, targets)`.

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
    """The mean cross-entropy in nats of the targets that are not -100, under logits `x @ weight.T`.

    Rows of the weight from `vocab_size` on belong to no token: they get no probability and no gradient.

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
    loss = _LinearCrossEntropy.apply(x_ND, weight, targets_N, vocab_size, num_parts)  # type: ignore[no-untyped-call]
    return cast(Tensor, loss)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, vocab_size: int, num_parts: int
    ) -> Tensor:
        needs_gradient = any(ctx.needs_input_grad[:2])
        scale = 1 / (targets_N != IGNORED).sum().clamp(min=1)
        loss = torch.zeros((), device=x_ND.device, dtype=torch.float32)
        grad_x_ND = torch.empty_like(x_ND)
        # Of many parts: a sum of bfloat16 would lose the small ones.
        grad_weight_VD = torch.zeros(weight_VD.shape, device=x_ND.device, dtype=torch.float32)
        parts = zip(x_ND.chunk(num_parts), targets_N.chunk(num_parts), grad_x_ND.chunk(num_parts), strict=True)
        for x_CD, targets_C, grad_x_CD in parts:
            part_loss, grad_CV = _loss_and_gradient(x_CD @ weight_VD.T, targets_C, scale, vocab_size)
            loss = loss + part_loss
            if needs_gradient:
                grad_x_CD.copy_(grad_CV @ weight_VD)
                grad_weight_VD = grad_weight_VD + grad_CV.T @ x_CD
        ctx.save_for_backward(grad_x_ND, grad_weight_VD.to(weight_VD.dtype))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        grad_x_ND, grad_weight_VD = ctx.saved_tensors
        return (
            grad_x_ND * grad_loss.to(grad_x_ND.dtype),
            grad_weight_VD * grad_loss.to(grad_weight_VD.dtype),
            None,
            None,
            None,
        )


def _loss_and_gradient(logits_CV: Tensor, targets_C: Tensor, scale: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """The summed loss of some tokens times `scale`, and its gradient by their logits; in float32 inside one kernel.

    Nothing is done for each logit that can be done for each token: the kernel is bound by arithmetic, not by memory
    (comparing every column with the target, and two divisions, took a third longer).
    """
    wide_CV = logits_CV.float()
    if vocab_size < logits_CV.shape[1]:
        columns_V = torch.arange(logits_CV.shape[1], device=logits_CV.device)
        wide_CV = torch.where(columns_V < vocab_size, wide_CV, -torch.inf)
    top_C1 = wide_CV.amax(-1, keepdim=True)
    powers_CV = (wide_CV - top_C1).exp()
    sums_C1 = powers_CV.sum(-1, keepdim=True)
    targets_C1 = targets_C.clamp(min=0)[:, None]
    weights_C1 = (targets_C != IGNORED)[:, None] * scale
    chosen_C1 = logits_CV.gather(-1, targets_C1).float()
    loss = ((sums_C1.log() + top_C1 - chosen_C1) * weights_C1).sum()
    grad_CV = (powers_CV * (weights_C1 / sums_C1)).to(logits_CV.dtype)
    return loss, grad_CV.scatter_add(-1, targets_C1, -weights_C1.to(logits_CV.dtype))
