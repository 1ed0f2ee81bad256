"""A language model and its training as plain functions of tensors, a few lines each, with examples.

These functions favor clarity over speed. They agree with torch's own layers, and `models/gpt` agrees with
`transformer_lm`. In reading order:

1. layers          linear, embedding, rmsnorm, silu, swiglu, rope
2. attention       softmax, scaled_dot_product_attention, multihead_self_attention
3. the model       transformer_block, transformer_lm, cross_entropy
4. its training    get_batch, clip_gradients, cosine_schedule, AdamW, save_checkpoint, load_checkpoint

Shapes: B sequences, T tokens per sequence, S attended tokens, D d_model, H heads of size K, F d_ff, V vocabulary size;
`...` means any leading dimensions.

Tensors whose shapes do not match raise torch's `RuntimeError`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gristmill.errors import CheckpointError, OptionError
from gristmill.packages import packages_for
from gristmill.publish import publish

__all__ = [
    "AdamW",
    "clip_gradients",
    "cosine_schedule",
    "cross_entropy",
    "embedding",
    "get_batch",
    "linear",
    "load_checkpoint",
    "multihead_self_attention",
    "rmsnorm",
    "rope",
    "save_checkpoint",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "swiglu",
    "transformer_block",
    "transformer_lm",
]


# Layers


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return `x` times the transposed `weight`.

    Args:
        x: Input, ... x inputs.
        weight: Matrix with one row per output, outputs x inputs.

    Raises:
        RuntimeError: The shapes do not match.

    Examples:
        >>> linear(torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])).tolist()
        [1.0, 2.0, 3.0]
    """
    return x @ weight.mT


def embedding(ids: Tensor, weight_VD: Tensor) -> Tensor:
    """Return the rows of `weight_VD` selected by `ids`.

    Args:
        ids: Token ids, any shape.
        weight_VD: Embedding table with one row per token.

    Raises:
        IndexError: An id is not a row of the table.

    Examples:
        >>> embedding(torch.tensor([1, 1, 0]), torch.tensor([[0.5], [0.7]])).shape
        torch.Size([3, 1])
    """
    return weight_VD[ids]


def rmsnorm(x: Tensor, weight_D: Tensor, *, eps: float = 1e-5) -> Tensor:
    """Return `x` divided by its root mean square over the last dimension, times `weight_D`.

    Computed in float32, because squares of float16 numbers overflow.

    Args:
        x: Input, ... x D.
        weight_D: Scale per dimension.
        eps: Added to the mean square, so that the division is safe.

    Raises:
        RuntimeError: The shapes do not match.

    Examples:
        >>> rmsnorm(torch.tensor([3.0, -3.0]), torch.tensor([1.0, 2.0]), eps=0).tolist()
        [1.0, -2.0]
    """
    x32 = x.float()
    normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return (normed * weight_D).to(x.dtype)


def silu(x: Tensor) -> Tensor:
    """Return `x` times its sigmoid: about 0 for large negative x, about x for large positive x.

    Args:
        x: Input of floating-point type, any shape.

    Examples:
        >>> silu(torch.tensor([-100.0, 0.0, 100.0])).tolist()
        [-0.0, 0.0, 100.0]
    """
    return x * torch.sigmoid(x)


def swiglu(x: Tensor, w1_FD: Tensor, w2_DF: Tensor, w3_FD: Tensor) -> Tensor:
    """Return the output of the feed-forward layer, w2(silu(w1 x) * w3 x).

    Args:
        x: Input, ... x D.
        w1_FD: Gate projection.
        w2_DF: Output projection.
        w3_FD: Up projection.

    Raises:
        RuntimeError: The shapes do not match.

    Examples:
        >>> swiglu(torch.ones(4, 6), torch.ones(16, 6), torch.ones(6, 16), torch.ones(16, 6)).shape
        torch.Size([4, 6])
    """
    return linear(silu(linear(x, w1_FD)) * linear(x, w3_FD), w2_DF)


def rope(x: Tensor, positions: Tensor, *, theta: float = 10_000.0) -> Tensor:
    """Return `x` with rotary positions: numbers 2i and 2i + 1 rotated by positions * theta^(-2i/K).

    This is the interleaved form, in which the numbers of a pair are neighbours. The other form pairs the numbers i and
    i + K/2; it is the same model with its weights in another order.

    Args:
        x: Queries or keys, ... x T x K, with an even K.
        positions: Positions of the tokens, T of them, or ... x T where sequences have different positions. They need
            not be whole numbers.
        theta: Base of the rotation frequencies.

    Raises:
        RuntimeError: The shapes do not match.

    Examples:
        >>> rope(torch.tensor([[1.0, 0.0]]), torch.tensor([math.pi / 2])).round(decimals=4).abs().tolist()
        [[0.0, 1.0]]
    """
    head_dim = x.shape[-1]
    frequencies = theta ** -(torch.arange(0, head_dim, 2, device=x.device, dtype=torch.float32) / head_dim)
    angles = positions.to(torch.float32)[..., None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)


# Attention


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """Return exp(x) divided by its sum along `dim`.

    The maximum is subtracted first, because exp(1000) is infinite.

    Args:
        x: Input, any shape.
        dim: Dimension that sums to 1.

    Raises:
        IndexError: `x` has no dimension `dim`.

    Examples:
        >>> softmax(torch.tensor([1000.0, 1000.0])).tolist()
        [0.5, 0.5]
    """
    exponentials = (x - x.amax(dim, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask_TS: Tensor | None = None) -> Tensor:
    """Return softmax(q kT / sqrt(K)) v, one weighted mean of the values per query.

    Args:
        q: Queries, ... x T x K.
        k: Keys, ... x S x K.
        v: Values, ... x S x K.
        mask_TS: True where query t attends to key s. Each query must attend to at least one key. None: all keys.

    Raises:
        RuntimeError: The shapes do not match.

    Examples:
        >>> q, k, v = torch.zeros(1, 4), torch.randn(3, 4), torch.tensor([[0.0], [1.0], [5.0]])
        >>> scaled_dot_product_attention(q, k, v).item()
        2.0
        >>> scaled_dot_product_attention(q, k, v, torch.arange(3) < 2).item()
        0.5
    """
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask_TS is not None:
        scores = scores.masked_fill(~mask_TS, -math.inf)
    return softmax(scores) @ v


def multihead_self_attention(
    x: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    v_weight: Tensor,
    output_weight: Tensor,
    *,
    num_heads: int,
    theta: float | None = None,
    positions: Tensor | None = None,
    num_kv_heads: int | None = None,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
    sliding_window: int | None = None,
    document_ids: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return the causal self-attention of `x`.

    Head h uses rows h K to (h + 1) K of the weights of q, k and v. Without `theta`, attention depends on the
    order of tokens only through the causal mask.

    Args:
        x: Input, ... x T x D.
        q_weight: Projection to queries, D x D.
        k_weight: Projection to keys, D x D, or fewer rows with `num_kv_heads`.
        v_weight: Projection to values, of the same shape as `k_weight`.
        output_weight: Projection of the result, D x D.
        num_heads: Number of query heads.
        theta: Base of the rotary positions of queries and keys. None: no positions.
        positions: Positions of the tokens, ... x T. None: 0 to T - 1.
        num_kv_heads: Number of key and value heads; their weights have K rows per head. Query heads 0 to n - 1 use the
            first one, the next n the second one and so on, where n is num_heads / num_kv_heads. None: num_heads.
        q_norm_weight: Scale of an rmsnorm of each query head (K numbers), applied before positions. None: no norm.
        k_norm_weight: The same for keys.
        sliding_window: A token attends to itself and the sliding_window - 1 tokens before it. None: all tokens before
            it.
        document_ids: ... x T. A token attends only to tokens with the same id. None: one document.
        eps: Epsilon of the norms.

    Raises:
        RuntimeError: The shapes do not match.

    Examples:
        >>> x_TD, weights = torch.randn(5, 8), torch.randn(4, 8, 8)
        >>> multihead_self_attention(x_TD, *weights, num_heads=2, theta=10_000.0).shape
        torch.Size([5, 8])
    """
    num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    q, k, v = (
        torch.unflatten(linear(x, weight), -1, (number, -1)).transpose(-2, -3)
        for weight, number in ((q_weight, num_heads), (k_weight, num_kv_heads), (v_weight, num_kv_heads))
    )
    q = q if q_norm_weight is None else rmsnorm(q, q_norm_weight, eps=eps)
    k = k if k_norm_weight is None else rmsnorm(k, k_norm_weight, eps=eps)
    if theta is not None:
        where = torch.arange(x.shape[-2], device=x.device) if positions is None else positions.unsqueeze(-2)
        q, k = rope(q, where, theta=theta), rope(k, where, theta=theta)
    k, v = (each.repeat_interleave(num_heads // num_kv_heads, dim=-3) for each in (k, v))
    seen = _attention_mask(x.shape[-2], sliding_window, document_ids).to(x.device)
    mixed = scaled_dot_product_attention(q, k, v, seen)
    return linear(mixed.transpose(-2, -3).flatten(-2), output_weight)


def _attention_mask(num_tokens: int, sliding_window: int | None, document_ids: Tensor | None) -> Tensor:
    """Return the attention mask, True where token t attends to token s.

    T x T, or ... x 1 x T x T with `document_ids`.
    """
    t, s = torch.arange(num_tokens)[:, None], torch.arange(num_tokens)
    seen = (s <= t) if sliding_window is None else (s <= t) & (t - s < sliding_window)
    if document_ids is None:
        return seen
    return seen & (document_ids[..., :, None] == document_ids[..., None, :]).unsqueeze(-3).cpu()


# The model


def transformer_block(
    x: Tensor,
    weights: Mapping[str, Tensor],
    *,
    num_heads: int,
    theta: float | None = 10_000.0,
    positions: Tensor | None = None,
    num_kv_heads: int | None = None,
    sliding_window: int | None = None,
    document_ids: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return `x` after one layer: y = x + attention(norm(x)), then y + swiglu(norm(y)).

    Args:
        x: Input, ... x T x D.
        weights: attn.q_proj.weight, attn.k_proj.weight, attn.v_proj.weight, attn.output_proj.weight (D x D),
            ln1.weight, ln2.weight (D), ffn.w1.weight, ffn.w3.weight (F x D), ffn.w2.weight (D x F); with normalized
            queries and keys also attn.q_norm.weight and attn.k_norm.weight (K).
        num_heads: Number of query heads.
        theta: Base of the rotary positions. None: no positions.
        positions: Positions of the tokens. None: 0 to T - 1.
        num_kv_heads: Number of key and value heads. None: num_heads.
        sliding_window: Number of tokens that a token attends to. None: itself and all tokens before it.
        document_ids: ... x T. A token attends only to tokens with the same id.
        eps: Epsilon of the norms.

    Raises:
        KeyError: A weight is missing.
        RuntimeError: The shapes do not match.

    Examples:
        >>> shapes = {f"attn.{name}_proj.weight": (8, 8) for name in ("q", "k", "v", "output")}
        >>> shapes |= {"ln1.weight": (8,), "ln2.weight": (8,)}
        >>> shapes |= {"ffn.w1.weight": (24, 8), "ffn.w2.weight": (8, 24), "ffn.w3.weight": (24, 8)}
        >>> weights = {name: torch.randn(shape) for name, shape in shapes.items()}
        >>> transformer_block(torch.randn(2, 5, 8), weights, num_heads=2).shape
        torch.Size([2, 5, 8])
    """
    q_k_v_output = (weights[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output"))
    normed = rmsnorm(x, weights["ln1.weight"], eps=eps)
    x = x + multihead_self_attention(
        normed,
        *q_k_v_output,
        num_heads=num_heads,
        theta=theta,
        positions=positions,
        num_kv_heads=num_kv_heads,
        q_norm_weight=weights.get("attn.q_norm.weight"),
        k_norm_weight=weights.get("attn.k_norm.weight"),
        sliding_window=sliding_window,
        document_ids=document_ids,
        eps=eps,
    )
    normed = rmsnorm(x, weights["ln2.weight"], eps=eps)
    return x + swiglu(normed, weights["ffn.w1.weight"], weights["ffn.w2.weight"], weights["ffn.w3.weight"])


def transformer_lm(
    weights: Mapping[str, Tensor],
    tokens: Tensor,
    *,
    num_heads: int,
    theta: float | None = 10_000.0,
    num_kv_heads: int | None = None,
    sliding_window: int | None = None,
    document_ids: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return the logits (... x T x V) of the token after each of `tokens`.

    Args:
        weights: token_embeddings.weight (V x D); for each layer i, counted from 0, the names of `transformer_block`
            prefixed with "layers.{i}."; ln_final.weight (D); lm_head.weight (V x D), or no such weight to use the
            embedding.
        tokens: Token ids, ... x T.
        num_heads: Number of query heads.
        theta: Base of the rotary positions. None: no positions.
        num_kv_heads: Number of key and value heads. None: num_heads.
        sliding_window: Number of tokens that a token attends to. None: itself and all tokens before it.
        document_ids: ... x T. A token attends only to tokens with the same id.
        eps: Epsilon of the norms.

    Raises:
        KeyError: A weight is missing.
        IndexError: A token has no row in the embedding.
        RuntimeError: The shapes do not match.

    Examples:
        >>> weights = {"token_embeddings.weight": torch.randn(50, 8), "ln_final.weight": torch.ones(8)}
        >>> transformer_lm(weights, torch.tensor([[3, 1, 4]]), num_heads=2).shape
        torch.Size([1, 3, 50])
    """
    x = embedding(tokens, weights["token_embeddings.weight"])
    index = 0
    while layer := _with_prefix(weights, f"layers.{index}."):
        x = transformer_block(
            x,
            layer,
            num_heads=num_heads,
            theta=theta,
            num_kv_heads=num_kv_heads,
            sliding_window=sliding_window,
            document_ids=document_ids,
            eps=eps,
        )
        index += 1
    x = rmsnorm(x, weights["ln_final.weight"], eps=eps)
    return linear(x, weights.get("lm_head.weight", weights["token_embeddings.weight"]))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of -log softmax(logits)[target] in nats.

    The log softmax is computed as x - log(sum(exp(x))), because a softmax may be 0.

    Args:
        logits: ... x V.
        targets: Ids of the correct tokens, of the leading dimensions of `logits`.

    Raises:
        RuntimeError: The shapes do not match, or a target is not below V.

    Examples:
        >>> cross_entropy(torch.tensor([[0.0, 1000.0]]), torch.tensor([0])).item()
        1000.0
    """
    logits = logits - logits.amax(-1, keepdim=True)
    log_sum = logits.exp().sum(-1).log()
    return (log_sum - logits.gather(-1, targets[..., None]).squeeze(-1)).mean()


# Its training


def get_batch(
    array: NDArray[Any],
    batch_size: int,
    context_length: int,
    device: torch.device | str = "cpu",
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (x, y), random windows of `array` and the token after each of their tokens.

    Windows are drawn with replacement, and every start is equally likely. From a memory map, only the windows are read.

    Args:
        array: Token ids, one-dimensional.
        batch_size: Number of windows.
        context_length: Tokens per window. `x` and `y` are batch_size x context_length.
        device: Device of the tensors.
        generator: Source of the random starts. None: torch's global generator.

    Raises:
        OptionError: `array` has fewer than context_length + 1 tokens.

    Examples:
        >>> x, y = get_batch(np.arange(100, dtype=np.uint16), 4, 8)
        >>> x.shape, bool((y == x + 1).all())
        (torch.Size([4, 8]), True)
    """
    if len(array) <= context_length:
        raise OptionError(
            f"context_length={context_length:,} needs at least {context_length + 1:,} tokens, and there are "
            f"{len(array):,}. Pass more tokens or a smaller context_length."
        )
    begins = torch.randint(len(array) - context_length, (batch_size,), generator=generator)
    windows = np.stack([array[begin : begin + context_length + 1] for begin in begins.tolist()])
    tokens = torch.from_numpy(windows.astype(np.int64)).to(device)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float, *, eps: float = 1e-6) -> Tensor:
    """Scale all gradients in place so that their total norm is at most `max_norm`.

    Args:
        parameters: Parameters; those without a gradient are ignored.
        max_norm: Largest norm of all gradients together.
        eps: Added to the norm, so that the division is safe.

    Returns:
        The norm before scaling.

    Raises:
        RuntimeError: The gradients are on different devices.

    Examples:
        >>> p = torch.zeros(2, requires_grad=True)
        >>> p.grad = torch.tensor([3.0, 4.0])
        >>> clip_gradients([p], 1.0).item(), p.grad.norm().round(decimals=4).item()
        (5.0, 1.0)
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([gradient.float().square().sum() for gradient in gradients] or [torch.zeros(())]).sum().sqrt()
    scale = (max_norm / (norm + eps)).clamp(max=1.0)  # a tensor: comparing it with 1 in Python would wait for the GPU
    for gradient in gradients:
        gradient.mul_(scale)
    return norm


def cosine_schedule(step: int, *, peak: float, final: float, warmup_steps: int, total_steps: int) -> float:
    """Return the learning rate of `step`: a linear warm-up, then half a cosine down to `final`.

    Args:
        step: Step, counted from 0.
        peak: Learning rate at the end of the warm-up.
        final: Learning rate at `total_steps` and later.
        warmup_steps: Steps in which the rate rises from 0 to `peak`.
        total_steps: Step at which the rate reaches `final`.

    Examples:
        >>> [cosine_schedule(step, peak=1.0, final=0.1, warmup_steps=2, total_steps=6) for step in (0, 1, 2, 4, 6, 9)]
        [0.0, 0.5, 1.0, 0.55, 0.1, 0.1]
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step >= total_steps:
        return final
    done = (step - warmup_steps) / (total_steps - warmup_steps)
    return final + (peak - final) * (1 + math.cos(math.pi * done)) / 2


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2).

    Each weight moves by m / sqrt(v), where m is the running mean of its gradient and v that of the squared gradient.
    Both start at 0 and are corrected for that bias. Weight decay is applied to the weight directly, not through the
    gradient.

    Args:
        params: Parameters, or dicts of parameter groups, as in every optimizer of torch.
        lr: Learning rate.
        betas: Decay rates of the running means of the gradient and of its square.
        eps: Added to the denominator.
        weight_decay: Factor of the weight decay; each step multiplies weights by 1 - lr * weight_decay.

    Raises:
        OptionError: A number is negative, or a beta is not below 1.

    Examples:
        >>> w = torch.tensor([5.0], requires_grad=True)
        >>> optimizer = AdamW([w], lr=0.1, weight_decay=0.0)
        >>> for _ in range(100):
        ...     optimizer.zero_grad()
        ...     w.square().sum().backward()
        ...     optimizer.step()
        >>> abs(w.item()) < 0.5
        True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        if lr < 0 or eps < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise OptionError(
                f"lr, eps and weight_decay must be >= 0, and betas must be >= 0 and < 1, got lr={lr}, eps={eps}, "
                f"weight_decay={weight_decay}, betas={betas}."
            )
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every weight that has a gradient.

        Args:
            closure: Function that computes the loss and the gradients again, called first. None: the gradients are used
                as they are.

        Returns:
            The result of `closure`, or None without one.

        Raises:
            RuntimeError: A gradient does not match its weight.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, **{name: group[name] for name in ("lr", "betas", "eps", "weight_decay")})
        return loss

    def _move(self, weight: Tensor, *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        state = self.state[weight]
        if not state:
            state.update(step=0, m=torch.zeros_like(weight), v=torch.zeros_like(weight))
        gradient, m, v = weight.grad, state["m"], state["v"]
        assert gradient is not None
        state["step"] += 1
        m.mul_(betas[0]).add_(gradient, alpha=1 - betas[0])
        v.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
        m_hat = m / (1 - betas[0] ** state["step"])
        v_hat = v / (1 - betas[1] ** state["step"])
        weight.mul_(1 - lr * weight_decay)
        weight.sub_(lr * m_hat / (v_hat.sqrt() + eps))


CHECKPOINT_FORMAT = "gristmill plain checkpoint 1"


def save_checkpoint(
    model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int, out: str | os.PathLike[str] | BinaryIO
) -> None:
    """Write a model, its optimizer and the iteration to a checkpoint.

    The checkpoint is a safetensors file. Names of weights have the prefix "model.", names of the optimizer's tensors
    "optimizer.{parameter}."; everything else is JSON in the metadata. Nothing in the file can be executed.

    Args:
        model: Model whose weights are saved.
        optimizer: Its optimizer.
        iteration: Number of completed steps.
        out: A path, which is replaced atomically, or an open binary file.

    Raises:
        OSError: The file cannot be written.
        MissingPackageError: safetensors is not installed.

    Examples:
        >>> import io
        >>> model = nn.Linear(2, 2)
        >>> optimizer, file = AdamW(model.parameters()), io.BytesIO()
        >>> save_checkpoint(model, optimizer, 7, file)
        >>> _ = file.seek(0)
        >>> load_checkpoint(file, model, optimizer)
        7
    """
    with packages_for("gm.lm.functional.save_checkpoint"):
        from safetensors.torch import save

    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    state = optimizer.state_dict()
    numbers: dict[str, dict[str, Any]] = {}
    for index, entries in state["state"].items():
        numbers[str(index)] = {name: value for name, value in entries.items() if not isinstance(value, Tensor)}
        tensors |= {f"optimizer.{index}.{name}": value for name, value in entries.items() if isinstance(value, Tensor)}
    metadata = {
        "format": CHECKPOINT_FORMAT,
        "iteration": json.dumps(iteration),
        "optimizer": json.dumps({"numbers": numbers, "param_groups": state["param_groups"]}),
    }
    # Copies: safetensors refuses tensors that share memory, as tied weights do.
    data = save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}, metadata)
    if isinstance(out, str | os.PathLike):
        with publish(out) as file:
            file.write(data)
    else:
        out.write(data)


def load_checkpoint(src: str | os.PathLike[str] | BinaryIO, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load a checkpoint of `save_checkpoint` into a model and an optimizer of the same shape.

    Args:
        src: A path or an open binary file.
        model: Model that receives the weights.
        optimizer: Optimizer that receives its state.

    Returns:
        The iteration that was saved.

    Raises:
        CheckpointError: The file is not a checkpoint, is damaged, or does not fit the model or the optimizer.
        OSError: The file cannot be read.

    Examples:
        ```python
        iteration = load_checkpoint("checkpoint.safetensors", model, optimizer)
        ```
    """
    if isinstance(src, str | os.PathLike):
        name, data = os.fspath(src), Path(src).read_bytes()
    else:
        name, data = "the checkpoint", src.read()
    tensors, metadata = _read_safetensors(data, name)
    try:
        iteration, state = int(metadata["iteration"]), _optimizer_state(optimizer, tensors, metadata["optimizer"])
        model.load_state_dict(_with_prefix(tensors, "model."))
        optimizer.load_state_dict(state)
    except (LookupError, TypeError, AttributeError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{name} does not fit this model and optimizer: {error} Pass a model and an optimizer of the saved shapes."
        ) from None
    return iteration


def _optimizer_state(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], record: str) -> dict[str, Any]:
    """Return the argument of the optimizer's `load_state_dict`.

    JSON has no tuples, so lists become tuples where the optimizer uses them.
    """
    recorded = json.loads(record)
    state: dict[int, dict[str, Any]] = {int(index): dict(numbers) for index, numbers in recorded["numbers"].items()}
    for key, tensor in _with_prefix(tensors, "optimizer.").items():
        index, _, name = key.partition(".")
        state[int(index)][name] = tensor
    groups = [
        {name: tuple(value) if isinstance(own.get(name), tuple) else value for name, value in group.items()}
        for group, own in zip(recorded["param_groups"], optimizer.param_groups, strict=True)
    ]
    return {"state": state, "param_groups": groups}


def _read_safetensors(data: bytes, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata.

    `safetensors.torch.load` omits the metadata, which is JSON after an 8-byte length.
    """
    with packages_for("gm.lm.functional.load_checkpoint"):
        from safetensors import SafetensorError
        from safetensors.torch import load

    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(
            f"{name} is not a checkpoint, or is damaged: {error}. Pass a file written by save_checkpoint."
        ) from None
    metadata = header.get("__metadata__") or {}
    if metadata.get("format") != CHECKPOINT_FORMAT:
        raise CheckpointError(f"{name} is not a checkpoint of save_checkpoint. Pass a file written by save_checkpoint.")
    return tensors, metadata


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with `prefix`, without the prefix."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
