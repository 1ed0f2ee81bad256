"""The two ends of the GPT, computed with kernels: the embedding, and the final norm with the head and the loss.

The loss is computed in parts, as in `linear_cross_entropy`: the logits of a part are written, replaced by their
gradient, and read by two products, before the next part reuses their memory.

If the embedding is also the head, it gets a gradient from both ends. That of the head is computed first, and the
gradient of the embedding is added to it in place.

Shapes: N tokens, C of them in a part, D width, V rows of embedding and head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from gristmill.lm.data.batch import IGNORED
from gristmill.lm.kernels.cross_entropy import cross_entropy
from gristmill.lm.kernels.embedding import add_embedding_gradient
from gristmill.lm.kernels.float8 import E5M2, Site, transposed
from gristmill.lm.kernels.products import add_product, float8_product, product
from gristmill.lm.kernels.rms_norm import add_rms_norm, rms_norm_gradient
from gristmill.lm.kernels.weight_copies import WeightCopies
from gristmill.lm.models.gpt.kernel_linear import Float8Sites

__all__ = ["KernelHead", "Tape", "embedded", "head_loss_with_kernels", "logit_gradient_site"]

# The gradient of a logit is between -1 and 1. Multiplied by this number, it uses the range of e5m2 numbers.
LOGIT_GRADIENT_SCALE = 32768.0


def logit_gradient_site(device: torch.device) -> Site:
    """Return the scale of the gradient of logits, which never changes."""
    scale = torch.full((4,), LOGIT_GRADIENT_SCALE, device=device)
    return Site(E5M2, scale[:1], (1 / scale)[:1], torch.zeros(4, device=device)[:1])


@dataclass(frozen=True)
class KernelHead:
    """The final norm and the head, with the form of its products."""

    norm_D: Tensor
    weight_VD: Tensor
    copies: WeightCopies
    sites: Float8Sites | None
    eps: float
    vocab_size: int
    num_parts: int


class Tape:
    """Carries the gradient of a tied head from one end of the backward pass to the other."""

    def __init__(self) -> None:
        self._gradient_VD: Tensor | None = None

    def put(self, gradient_VD: Tensor) -> None:
        """Keep the gradient of the head."""
        self._gradient_VD = gradient_VD

    def take(self) -> Tensor | None:
        """Return the gradient of the head, if there is one, and forget it."""
        gradient_VD, self._gradient_VD = self._gradient_VD, None
        return gradient_VD


def embedded(ids_N: Tensor, weight_VD: Tensor, copies: WeightCopies, tape: Tape, *, is_deterministic: bool) -> Tensor:
    """Return the rows of the embedding, N x D."""
    rows_ND: Tensor = _Embedding.apply(ids_N, weight_VD, copies, tape, is_deterministic)  # type: ignore[no-untyped-call]
    return rows_ND


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, ids_N: Tensor, weight_VD: Tensor, copies: WeightCopies, tape: Tape, is_deterministic: bool
    ) -> Tensor:
        ctx.save_for_backward(ids_N)
        ctx.shape, ctx.tape, ctx.is_deterministic = weight_VD.shape, tape, is_deterministic
        return F.embedding(ids_N, copies[weight_VD])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor | None, ...]:
        (ids_N,) = ctx.saved_tensors
        of_head_VD = ctx.tape.take()
        grad_VD = grad_ND.new_zeros(ctx.shape, dtype=torch.float32) if of_head_VD is None else of_head_VD
        add_embedding_gradient(grad_VD, grad_ND, ids_N, is_deterministic=ctx.is_deterministic)
        return None, grad_VD, None, None, None


def head_loss_with_kernels(
    head: KernelHead, stream_ND: Tensor, delta_ND: Tensor, targets_N: Tensor, tape: Tape | None
) -> Tensor:
    """Return the mean cross-entropy in nats over the targets that are not -100; 0 if there are none.

    tape: where the gradient of the head goes if it is tied to the embedding. None: it has a gradient of its own.
    """
    # Checked here, because inside a Function a parameter seems to need a gradient even under no_grad.
    with_gradient = torch.is_grad_enabled()
    loss: Tensor = _HeadLoss.apply(  # type: ignore[no-untyped-call]
        stream_ND, delta_ND, head.norm_D, head.weight_VD, targets_N, head, tape, with_gradient
    )
    return loss


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        stream_ND: Tensor,
        delta_ND: Tensor,
        norm_D: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        head: KernelHead,
        tape: Tape | None,
        with_gradient: bool,
    ) -> Tensor:
        site = None if head.sites is None else head.sites.input
        normed = add_rms_norm(stream_ND, delta_ND, norm_D, eps=head.eps, site=site, keeps_normed=head.sites is None)
        losses_N = torch.empty(len(targets_N), device=targets_N.device, dtype=torch.float32)
        loss_of_parts = _losses_of_parts if head.sites is None else _losses_of_float8_parts
        x_ND = normed.normed_ND if head.sites is None else normed.float8_ND
        assert x_ND is not None
        grads = loss_of_parts(head, x_ND, targets_N, losses_N, with_gradient)
        scale = 1 / (targets_N != IGNORED).sum().clamp(min=1).float()
        if grads is not None:
            ctx.save_for_backward(normed.stream_ND, normed.factor_N, norm_D, *grads, scale)
            ctx.tape = tape
        return losses_N.sum() * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        stream_ND, factor_N, norm_D, grad_normed_ND, grad_weight_VD, scale = ctx.saved_tensors
        factor = grad_loss.float() * scale
        grad_ND, grad_norm_D = rms_norm_gradient(grad_normed_ND, stream_ND, norm_D, factor_N, scale=factor.reshape(1))
        grad_weight_VD = grad_weight_VD * factor
        if ctx.tape is None:
            return grad_ND, grad_ND, grad_norm_D, grad_weight_VD, None, None, None, None
        ctx.tape.put(grad_weight_VD)
        return grad_ND, grad_ND, grad_norm_D, None, None, None, None, None


def _parts(num_tokens: int, num_parts: int) -> list[slice]:
    """Return slices of equal size, the last of which may be shorter, in multiples of 16 tokens."""
    size = -(-num_tokens // (max(num_parts, 1) * 16)) * 16
    return [slice(begin, min(begin + size, num_tokens)) for begin in range(0, num_tokens, size)]


def _losses_of_parts(
    head: KernelHead, x_ND: Tensor, targets_N: Tensor, losses_N: Tensor, with_gradient: bool
) -> tuple[Tensor, Tensor] | None:
    """Write the losses; return the gradients of their sum by the input and by the weight of the head."""
    weight_VD = head.copies[head.weight_VD]
    grad_ND = torch.empty_like(x_ND) if with_gradient else None
    grad_VD: Tensor | None = None
    logits_CV: Tensor | None = None
    for part in _parts(len(x_ND), head.num_parts):
        x_CD = x_ND[part]
        logits_CV = _products_into(logits_CV, x_CD, weight_VD.t())
        cross_entropy(
            logits_CV,
            targets_N[part],
            losses_N[part],
            vocab_size=head.vocab_size,
            grad_CV=logits_CV if with_gradient else None,
        )
        if grad_ND is None:
            continue
        torch.mm(logits_CV, weight_VD, out=grad_ND[part])
        if grad_VD is None:
            grad_VD = product(logits_CV.t(), x_CD, dtype=torch.float32)
        else:
            add_product(grad_VD, logits_CV.t(), x_CD)
    return None if grad_ND is None or grad_VD is None else (grad_ND, grad_VD)


def _products_into(buffer: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """Return `a @ b`, in the memory of `buffer` if that is large enough."""
    if buffer is None or len(buffer) < len(a):
        return torch.mm(a, b)
    return torch.mm(a, b, out=buffer[: len(a)])


def _losses_of_float8_parts(
    head: KernelHead, x_ND: Tensor, targets_N: Tensor, losses_N: Tensor, with_gradient: bool
) -> tuple[Tensor, Tensor] | None:
    """Do the same with products of 8-bit floats."""
    sites = head.sites
    assert sites is not None
    dtype = head.copies[head.weight_VD].dtype
    rows_VD, columns_DV = head.copies.float8(head.weight_VD, sites.weight)
    x_DN = transposed(x_ND) if with_gradient else None
    grads_CD: list[Tensor] = []
    grad_VD: Tensor | None = None
    for part in _parts(len(x_ND), head.num_parts):
        logits_CV = float8_product(x_ND[part], rows_VD, sites.input, sites.weight, dtype=dtype, is_fast=True)
        grad_CV = torch.empty(logits_CV.shape, device=x_ND.device, dtype=sites.gradient.dtype)
        cross_entropy(
            logits_CV,
            targets_N[part],
            losses_N[part],
            vocab_size=head.vocab_size,
            grad_CV=grad_CV if with_gradient else None,
            factor=LOGIT_GRADIENT_SCALE,
        )
        if x_DN is None:
            continue
        grads_CD.append(float8_product(grad_CV, columns_DV, sites.gradient, sites.weight, dtype=dtype, is_fast=False))
        of_part_VD = float8_product(
            transposed(grad_CV), x_DN[:, part], sites.gradient, sites.input, dtype=torch.float32, is_fast=False
        )
        grad_VD = of_part_VD if grad_VD is None else grad_VD.add_(of_part_VD)
    return None if grad_VD is None else (torch.cat(grads_CD), grad_VD)
