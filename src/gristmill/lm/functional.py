"""A language model and its training in plain functions of tensors: each a few lines, with an example.

Nothing here is made for speed; everything agrees with torch's own layers, and `models/gpt.py` agrees with
`transformer_lm`. In reading order:

1. layers          linear, embedding, rmsnorm, silu, swiglu, rope
2. attention       softmax, scaled_dot_product_attention, multihead_self_attention
3. the model       transformer_block, transformer_lm, cross_entropy
4. its training    get_batch, clip_gradients, cosine_schedule, AdamW, save_checkpoint, load_checkpoint

Shapes: B sequences, T tokens each, S tokens that are attended to, D d_model, H heads of K numbers, F d_ff, V tokens of
the vocabulary; `...` stands for any dimensions before.
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
    """`x` times the transposed `weight`, which has a row for each output.

    >>> linear(torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    return x @ weight.mT


def embedding(ids: Tensor, weight_VD: Tensor) -> Tensor:
    """The rows of `weight_VD` that `ids` number.

    >>> embedding(torch.tensor([1, 1, 0]), torch.tensor([[0.5], [0.7]])).shape
    torch.Size([3, 1])
    """
    return weight_VD[ids]


def rmsnorm(x: Tensor, weight_D: Tensor, *, eps: float = 1e-5) -> Tensor:
    """`x` divided by the root of its mean square over the last dimension, times `weight_D`.

    Computed in float32: squares of float16 numbers overflow.

    >>> rmsnorm(torch.tensor([3.0, -3.0]), torch.tensor([1.0, 2.0]), eps=0).tolist()
    [1.0, -2.0]
    """
    x32 = x.float()
    normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return (normed * weight_D).to(x.dtype)


def silu(x: Tensor) -> Tensor:
    """`x` times its sigmoid: about 0 far to the left, about x far to the right.

    >>> silu(torch.tensor([-100.0, 0.0, 100.0])).tolist()
    [-0.0, 0.0, 100.0]
    """
    return x * torch.sigmoid(x)


def swiglu(x: Tensor, w1_FD: Tensor, w2_DF: Tensor, w3_FD: Tensor) -> Tensor:
    """The feed-forward layer: w2(silu(w1 x) * w3 x).

    >>> swiglu(torch.ones(4, 6), torch.ones(16, 6), torch.ones(6, 16), torch.ones(16, 6)).shape
    torch.Size([4, 6])
    """
    return linear(silu(linear(x, w1_FD)) * linear(x, w3_FD), w2_DF)


def rope(x: Tensor, positions: Tensor, *, theta: float = 10_000.0) -> Tensor:
    """`x` (... x T x K) with pair i of its numbers, 2i and 2i + 1, turned by positions * theta^(-2i/K).

    The interleaved form: a pair are neighbours. (The other form, numbers i and i + K/2, is the same model with its
    weights in another order.) `positions` are any numbers, T of them, or ... x T where sequences have their own.

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
    """exp(x) over its sum along `dim`. The greatest is subtracted first: exp(1000) would be infinite.

    >>> softmax(torch.tensor([1000.0, 1000.0])).tolist()
    [0.5, 0.5]
    """
    exponentials = (x - x.amax(dim, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask_TS: Tensor | None = None) -> Tensor:
    """softmax(q kT / sqrt(K)) v: for each query (... x T x K) a mean of the values (... x S x K).

    mask_TS: True where query t sees key s. Each query must see at least one.

    >>> q, k, v = torch.zeros(1, 4), torch.randn(3, 4), torch.tensor([[0.0], [1.0], [5.0]])
    >>> scaled_dot_product_attention(q, k, v).item(), scaled_dot_product_attention(q, k, v, torch.arange(3) < 2).item()
    (2.0, 0.5)
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
    """Causal attention of the tokens of `x` (... x T x D) among themselves, in `num_heads` heads; all weights D x D.

    Head h has rows h K to (h + 1) K of the weights of q, k and v. With `theta`, queries and keys get rotary positions,
    0 to T - 1 unless `positions` says otherwise; without it, attention does not know about order except who is before.

    num_kv_heads: keys and values have so many heads, and their weights K rows for each. Heads 0 to n - 1 of the queries
        use the first, the next n the second, and so on, where n is num_heads / num_kv_heads.
    q_norm_weight, k_norm_weight: rmsnorm of each head (K numbers) of queries and keys, before positions.
    sliding_window: a token sees itself and the sliding_window - 1 tokens before it.
    document_ids: ... x T. A token sees only tokens with its own id.

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
    seen = _who_sees_whom(x.shape[-2], sliding_window, document_ids).to(x.device)
    mixed = scaled_dot_product_attention(q, k, v, seen)
    return linear(mixed.transpose(-2, -3).flatten(-2), output_weight)


def _who_sees_whom(num_tokens: int, sliding_window: int | None, document_ids: Tensor | None) -> Tensor:
    """T x T, or ... x 1 x T x T with `document_ids`: True where token t sees token s."""
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
    """`x` (... x T x D) after one layer: x + attention(norm x), and then that + swiglu(norm of it).

    weights: attn.q_proj.weight, attn.k_proj.weight, attn.v_proj.weight, attn.output_proj.weight (D x D), ln1.weight,
        ln2.weight (D), ffn.w1.weight, ffn.w3.weight (F x D), ffn.w2.weight (D x F); where queries and keys are normed,
        attn.q_norm.weight and attn.k_norm.weight (K). The other arguments are those of `multihead_self_attention`.

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
    """The logits (... x T x V) of the token after each of `tokens` (... x T).

    weights: token_embeddings.weight (V x D); for layer i from 0 on, the names of `transformer_block` after
        "layers.{i}."; ln_final.weight (D); lm_head.weight (V x D), or none: then it is the embedding.

    >>> weights = {"token_embeddings.weight": torch.randn(50, 8), "ln_final.weight": torch.ones(8)}
    >>> transformer_lm(weights, torch.tensor([[3, 1, 4]]), num_heads=2).shape
    torch.Size([1, 3, 50])
    """
    x = embedding(tokens, weights["token_embeddings.weight"])
    index = 0
    while layer := _beneath(weights, f"layers.{index}."):
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
    """The mean of -log softmax(logits)[target], in nats; logits ... x V, targets of the dimensions before V.

    log softmax is x - log(sum(exp(x))), never the logarithm of a softmax, which may be 0.

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
    """(x, y), both batch_size x context_length: windows that begin anywhere in `array`, and the token after each.

    With replacement, every beginning equally likely; by `generator`, or torch's global one. A memory map is read only
    where the windows lie.

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
    """Scale all gradients in place by one number, so that their common norm is at most `max_norm`; return the norm.

    >>> p = torch.zeros(2, requires_grad=True)
    >>> p.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([p], 1.0).item(), p.grad.norm().round(decimals=4).item()
    (5.0, 1.0)
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([gradient.float().square().sum() for gradient in gradients] or [torch.zeros(())]).sum().sqrt()
    scale = (max_norm / (norm + eps)).clamp(max=1.0)  # a tensor: asking whether it is below 1 would wait for a GPU
    for gradient in gradients:
        gradient.mul_(scale)
    return norm


def cosine_schedule(step: int, *, peak: float, final: float, warmup_steps: int, total_steps: int) -> float:
    """The learning rate of `step`: up in a line from 0 to `peak`, down to `final` at `total_steps` as half a cosine.

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

    Each weight moves by the running mean m of its gradient over the root of the running mean v of its square; both
    start at 0 and are corrected for it. Decay pulls the weight to 0 by itself, not by way of the gradient.

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
                f"lr={lr}, betas={betas}, eps={eps}, weight_decay={weight_decay}: betas lie in [0, 1), and the others "
                f"are not negative."
            )
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every weight that has a gradient; return what `closure` does, if there is one."""
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
    """Write all that training needs to resume to a path or an open binary file; a path is replaced whole or not at all.

    A safetensors file: "model." before the names of the weights, "optimizer.{parameter}." before those of the
    optimizer's tensors, and everything else as JSON in its metadata. Nothing in it can be executed.

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
    """Put what `save_checkpoint` wrote into a model and an optimizer of the same shape; return the iteration."""
    if isinstance(src, str | os.PathLike):
        name, data = os.fspath(src), Path(src).read_bytes()
    else:
        name, data = "the checkpoint", src.read()
    tensors, metadata = _read_safetensors(data, name)
    try:
        iteration, state = int(metadata["iteration"]), _optimizer_state(optimizer, tensors, metadata["optimizer"])
        model.load_state_dict(_beneath(tensors, "model."))
        optimizer.load_state_dict(state)
    except (LookupError, TypeError, AttributeError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{name} does not fit this model and optimizer: {error} Pass those of the same shape as were saved."
        ) from None
    return iteration


def _optimizer_state(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], record: str) -> dict[str, Any]:
    """What `load_state_dict` of an optimizer takes. With tuples where it has them: JSON knows only lists."""
    recorded = json.loads(record)
    state: dict[int, dict[str, Any]] = {int(index): dict(numbers) for index, numbers in recorded["numbers"].items()}
    for key, tensor in _beneath(tensors, "optimizer.").items():
        index, _, name = key.partition(".")
        state[int(index)][name] = tensor
    groups = [
        {name: tuple(value) if isinstance(own.get(name), tuple) else value for name, value in group.items()}
        for group, own in zip(recorded["param_groups"], optimizer.param_groups, strict=True)
    ]
    return {"state": state, "param_groups": groups}


def _read_safetensors(data: bytes, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, and the metadata, which `safetensors.torch.load` leaves out: JSON after 8 bytes of its size."""
    with packages_for("gm.lm.functional.load_checkpoint"):
        from safetensors import SafetensorError
        from safetensors.torch import load

    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{name} is not a checkpoint, or is damaged: {error}.") from None
    metadata = header.get("__metadata__", {})
    if metadata.get("format") != CHECKPOINT_FORMAT:
        raise CheckpointError(f"{name} is not a checkpoint of save_checkpoint. Pass a file that it has written.")
    return tensors, metadata


def _beneath(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
