"""The two halves of a block as functions with their own gradients, computed with kernels.

A block adds to the residual stream twice. The addition belongs to the next half here, because one kernel does it
together with the norm that follows. So a half takes (stream, delta), and its result is (stream + delta, next delta):

    attention      stream, delta  ->  stream + delta; queries, keys and values of its norm, rotated
                   torch's attention of these
                   output product  ->  delta
    feed-forward   stream, delta  ->  stream + delta; SwiGLU of its norm  ->  delta

The arithmetic is that of `Block` in network.py, except that intermediate results are rounded less often.

Shapes: N tokens, D d_model, F d_ff, K head size; q, k and v are B x T x heads x K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gristmill.lm.kernels.rms_norm import add_rms_norm, rms_norm_gradient
from gristmill.lm.kernels.rope import Heads, rotated, rotation_gradient
from gristmill.lm.kernels.swiglu import swiglu, swiglu_gradient
from gristmill.lm.models.gpt.kernel_linear import KernelLinear, Matrix

__all__ = ["KernelBlock", "block_with_kernels"]


@dataclass(frozen=True)
class KernelBlock:
    """The weights of a block, with the form of their products."""

    attention_norm_D: Tensor
    qkv: KernelLinear
    norm_K2: tuple[Tensor, Tensor] | None
    """Weights of the norms of queries and keys."""
    output: KernelLinear
    feed_forward_norm_D: Tensor
    gate_up: KernelLinear
    down: KernelLinear
    eps: float


def block_with_kernels(
    block: KernelBlock, stream_ND: Tensor, delta_ND: Tensor | None, heads: Heads, num_tokens: int, attend: Any
) -> tuple[Tensor, Tensor]:
    """Return (stream, delta) after a block.

    num_tokens: tokens per sequence. attend: function of q, k and v, B x heads x T x K.
    """
    stream_ND, q, k, v = _QueriesKeysValues.apply(  # type: ignore[no-untyped-call]
        stream_ND,
        delta_ND,
        block.attention_norm_D,
        block.qkv.weight,
        *(block.norm_K2 or (None, None)),
        block,
        heads,
        num_tokens,
    )
    mixed = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    mixed_ND = mixed.transpose(1, 2).reshape(stream_ND.shape)
    delta_ND = _Product.apply(mixed_ND, block.output.weight, block.output)  # type: ignore[no-untyped-call]
    stream_ND, delta_ND = _FeedForward.apply(  # type: ignore[no-untyped-call]
        stream_ND, delta_ND, block.feed_forward_norm_D, block.gate_up.weight, block.down.weight, block
    )
    return stream_ND, delta_ND


class _QueriesKeysValues(torch.autograd.Function):
    """(stream, delta) -> (stream + delta; q, k, v), B x T x heads x K each."""

    @staticmethod
    def forward(
        ctx: Any,
        stream_ND: Tensor,
        delta_ND: Tensor | None,
        norm_D: Tensor,
        weight: Tensor,
        q_norm_K: Tensor | None,
        k_norm_K: Tensor | None,
        block: KernelBlock,
        heads: Heads,
        num_tokens: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        linear = block.qkv
        normed = add_rms_norm(
            stream_ND, delta_ND, norm_D, eps=block.eps, site=linear.input_site, keeps_normed=linear.needs_wide
        )
        x = Matrix(normed.normed_ND, normed.float8_ND)
        qkv_NA = linear.forward(x)
        norm_K2 = None if q_norm_K is None or k_norm_K is None else (q_norm_K, k_norm_K)
        q, k, v = rotated(qkv_NA, heads, num_tokens=num_tokens, norm_K2=norm_K2)
        before_norm = None if norm_K2 is None else qkv_NA
        ctx.save_for_backward(
            normed.stream_ND, normed.factor_N, norm_D, linear.kept(x), before_norm, q_norm_K, k_norm_K
        )
        ctx.block, ctx.heads, ctx.has_delta = block, heads, delta_ND is not None
        return normed.stream_ND, q, k, v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_stream_ND, *grads_qkv = grads
        stream_ND, factor_N, norm_D, kept, before_norm, q_norm_K, k_norm_K = ctx.saved_tensors
        linear = ctx.block.qkv
        turned = rotation_gradient(
            (grads_qkv[0], grads_qkv[1], grads_qkv[2]),
            ctx.heads,
            site=linear.gradient_site,
            keeps_wide=linear.needs_wide,
            normed=None if before_norm is None else (before_norm, q_norm_K, k_norm_K),
        )
        grad = Matrix(turned.qkv_NA, turned.float8_NA)
        grad_weight = linear.weight_gradient(grad, kept)
        grad_ND, grad_norm_D = rms_norm_gradient(
            linear.input_gradient(grad), stream_ND, norm_D, factor_N, grad_stream_ND=grad_stream_ND
        )
        grad_delta_ND = grad_ND if ctx.has_delta else None
        norms_K2 = turned.norm_K2 or (None, None)
        return grad_ND, grad_delta_ND, grad_norm_D, grad_weight, *norms_K2, None, None, None


class _Product(torch.autograd.Function):
    """x -> x W^T."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight: Tensor, linear: KernelLinear) -> Tensor:
        ctx.save_for_backward(x_ND)
        ctx.linear = linear
        return linear.forward(Matrix(x_ND))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor | None, ...]:
        (x_ND,) = ctx.saved_tensors
        grad = Matrix(grad_ND)
        return ctx.linear.input_gradient(grad), ctx.linear.weight_gradient(grad, x_ND), None


class _FeedForward(torch.autograd.Function):
    """(stream, delta) -> (stream + delta; down(silu(gate) * up) of its norm)."""

    @staticmethod
    def forward(
        ctx: Any,
        stream_ND: Tensor,
        delta_ND: Tensor,
        norm_D: Tensor,
        gate_up_weight: Tensor,
        down_weight: Tensor,
        block: KernelBlock,
    ) -> tuple[Tensor, Tensor]:
        gate_up, down = block.gate_up, block.down
        normed = add_rms_norm(
            stream_ND, delta_ND, norm_D, eps=block.eps, site=gate_up.input_site, keeps_normed=gate_up.needs_wide
        )
        x = Matrix(normed.normed_ND, normed.float8_ND)
        gate_up_NF = gate_up.forward(x)
        h = Matrix(*swiglu(gate_up_NF, site=down.input_site, keeps_wide=down.needs_wide))
        ctx.save_for_backward(normed.stream_ND, normed.factor_N, norm_D, gate_up.kept(x), gate_up_NF, down.kept(h))
        ctx.block = block
        return normed.stream_ND, down.forward(h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_stream_ND, grad_delta_ND = grads
        stream_ND, factor_N, norm_D, kept_ND, gate_up_NF, kept_NF = ctx.saved_tensors
        gate_up, down = ctx.block.gate_up, ctx.block.down
        grad_down = down.of_gradient(grad_delta_ND)
        turned = swiglu_gradient(
            gate_up_NF,
            down.input_gradient(grad_down),
            site=gate_up.gradient_site,
            keeps_wide=gate_up.needs_wide,
        )
        grad_down_weight = down.weight_gradient(grad_down, kept_NF)
        grad = Matrix(turned.gate_up_NF, turned.float8_NF)
        grad_gate_up_weight = gate_up.weight_gradient(grad, kept_ND)
        grad_ND, grad_norm_D = rms_norm_gradient(
            gate_up.input_gradient(grad), stream_ND, norm_D, factor_N, grad_stream_ND=grad_stream_ND
        )
        return grad_ND, grad_ND, grad_norm_D, grad_gate_up_weight, grad_down_weight, None
