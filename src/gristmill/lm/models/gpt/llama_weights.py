"""Conversion of the weights of a GPT to and from the names of transformers and llama.cpp.

Rotary positions rotate pairs of numbers. Our pairs are neighbours, 2i and 2i + 1 of a head; those of transformers and
of llama.cpp's `qwen3` are i and i + K/2. So the rows of queries and keys, and the weights of their norms, have another
order there. llama.cpp's `llama` pairs neighbours as we do. Value weights are the same everywhere.

Shapes: D d_model, H heads of size K, V tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gristmill.errors import CheckpointError

if TYPE_CHECKING:
    from gristmill.lm.models.gpt.options import GPTConfig

__all__ = ["gguf_weights", "huggingface_weights", "weights_of_huggingface"]

# Our name: the names in transformers and llama.cpp.
OUTSIDE = {
    "embedding.weight": ("model.embed_tokens.weight", "token_embd.weight"),
    "head.weight": ("lm_head.weight", "output.weight"),
    "final_norm.weight": ("model.norm.weight", "output_norm.weight"),
}
IN_LAYER = {
    "attention_norm.weight": ("input_layernorm.weight", "attn_norm.weight"),
    "attention.q": ("self_attn.q_proj.weight", "attn_q.weight"),
    "attention.k": ("self_attn.k_proj.weight", "attn_k.weight"),
    "attention.v": ("self_attn.v_proj.weight", "attn_v.weight"),
    "attention.q_norm.weight": ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    "attention.k_norm.weight": ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    "attention.output.weight": ("self_attn.o_proj.weight", "attn_output.weight"),
    "feed_forward_norm.weight": ("post_attention_layernorm.weight", "ffn_norm.weight"),
    "feed_forward.gate": ("mlp.gate_proj.weight", "ffn_gate.weight"),
    "feed_forward.up": ("mlp.up_proj.weight", "ffn_up.weight"),
    "feed_forward.down.weight": ("mlp.down_proj.weight", "ffn_down.weight"),
}
ROTATED = ("attention.q", "attention.k", "attention.q_norm.weight", "attention.k_norm.weight")
# Tensors that old versions of transformers saved although they are computed.
COMPUTED = ("rotary_emb.inv_freq",)


# Export


def huggingface_weights(config: GPTConfig, weights: Mapping[str, Tensor], *, vocab_size: int) -> dict[str, Tensor]:
    """Return the state dict of the transformers class that `llama.huggingface_config` names."""
    return {
        _named(part, layer, column=0): halves(tensor, config.head_dim) if part in ROTATED else tensor
        for part, layer, tensor in _parts(config, weights, vocab_size)
    }


def gguf_weights(config: GPTConfig, weights: Mapping[str, Tensor], *, vocab_size: int) -> dict[str, Tensor]:
    """Return the tensors of the llama.cpp architecture that `llama.gguf_config` names."""
    return {
        _named(part, layer, column=1): halves(tensor, config.head_dim) if config.qk_norm and part in ROTATED else tensor
        for part, layer, tensor in _parts(config, weights, vocab_size)
    }


def halves(rows: Tensor, head_dim: int) -> Tensor:
    """Return the rows of heads in the order of transformers: first those with even numbers, then those with odd ones.

    >>> halves(torch.arange(8), head_dim=4).tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    return torch.unflatten(rows, 0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)


def neighbours(rows: Tensor, head_dim: int) -> Tensor:
    """Invert `halves`.

    >>> neighbours(halves(torch.arange(8), head_dim=4), head_dim=4).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    return torch.unflatten(rows, 0, (-1, 2, head_dim // 2)).transpose(1, 2).flatten(0, 2)


def _parts(
    config: GPTConfig, weights: Mapping[str, Tensor], vocab_size: int
) -> Iterator[tuple[str, int | None, Tensor]]:
    """Yield (name, layer, tensor) of every weight, with stacked weights split and padding rows removed."""
    for name in OUTSIDE:
        if name in weights:  # a tied model has no head
            yield name, None, weights[name] if name == "final_norm.weight" else weights[name][:vocab_size]
    for layer in range(config.num_layers):
        of_layer = _split(config, {name: weights.get(f"blocks.{layer}.{name}") for name in _stacked_names()})
        yield from ((name, layer, tensor) for name, tensor in of_layer.items() if tensor is not None)


def _stacked_names() -> list[str]:
    return ["attention.qkv.weight", "feed_forward.gate_up.weight", *(name for name in IN_LAYER if "weight" in name)]


def _split(config: GPTConfig, weights: dict[str, Tensor | None]) -> dict[str, Tensor | None]:
    qkv, gate_up = weights.pop("attention.qkv.weight"), weights.pop("feed_forward.gate_up.weight")
    assert qkv is not None and gate_up is not None  # every model has them
    q, k, v = qkv.split_with_sizes(config.qkv_rows)
    gate, up = gate_up.chunk(2)
    stacked = {"attention.q": q, "attention.k": k, "attention.v": v, "feed_forward.gate": gate, "feed_forward.up": up}
    return {**weights, **stacked}


def _named(part: str, layer: int | None, *, column: int) -> str:
    if layer is None:
        return OUTSIDE[part][column]
    return f"{('model.layers', 'blk')[column]}.{layer}.{IN_LAYER[part][column]}"


# Import


def weights_of_huggingface(config: GPTConfig, there: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Return float32 weights of a GPT from those of transformers; `CheckpointError` names missing or surplus tensors.

    Tensors without data (torch's "meta" device) are allowed; then only shapes are checked.
    """
    taker = _Taker(config, there, source)
    weights = {
        "embedding.weight": taker.table("embedding.weight"),
        "final_norm.weight": taker.take("final_norm.weight"),
    }
    if not config.tie_embeddings:
        weights["head.weight"] = taker.table("head.weight")
    for layer in range(config.num_layers):
        weights |= {f"blocks.{layer}.{name}": tensor for name, tensor in taker.layer(layer).items()}
    taker.check_all_taken()
    return weights


class _Taker:
    """Takes tensors of transformers by our names, and records which are left."""

    def __init__(self, config: GPTConfig, there: Mapping[str, Tensor], source: str) -> None:
        self._config, self._there, self._source = config, there, source
        self._taken: set[str] = set()

    def take(self, part: str, layer: int | None = None) -> Tensor:
        """Return one tensor in our row order, after checking its shape."""
        name, shape = _named(part, layer, column=0), _shape(self._config, part)
        if name not in self._there:
            raise CheckpointError(
                f"{self._source}: the tensor {name!r} is missing. The download may be incomplete: copy it again."
            )
        tensor = self._there[name]
        if list(tensor.shape) != shape:
            raise CheckpointError(
                f"{self._source}: {name!r} has shape {list(tensor.shape)}, but its config.json implies {shape}. Pass a "
                f"folder whose weights and config.json belong together."
            )
        self._taken.add(name)
        tensor = tensor.float()
        return neighbours(tensor, self._config.head_dim) if part in ROTATED else tensor

    def table(self, part: str) -> Tensor:
        """Return the embedding or the head, padded with rows of zeros to the padded vocabulary."""
        tensor = self.take(part)
        padded = tensor.new_zeros(self._config.padded_vocab_size, tensor.shape[1])
        padded[: tensor.shape[0]] = tensor
        return padded

    def layer(self, layer: int) -> dict[str, Tensor]:
        """Return all weights of a layer by their names inside it."""
        names = [name for name in IN_LAYER if "weight" in name and (self._config.qk_norm or "q_norm" not in name)]
        names = [name for name in names if self._config.qk_norm or "k_norm" not in name]
        found = {name: self.take(name, layer) for name in names}
        found["attention.qkv.weight"] = torch.cat([self.take(f"attention.{part}", layer) for part in "qkv"])
        gate_up = [self.take(f"feed_forward.{part}", layer) for part in ("gate", "up")]
        return found | {"feed_forward.gate_up.weight": torch.cat(gate_up)}

    def check_all_taken(self) -> None:
        """Raise `CheckpointError` for a tensor that a GPT does not have, such as a bias.

        Without it the logits would differ.
        """
        unused = {OUTSIDE["head.weight"][0]} if self._config.tie_embeddings else set()
        left = [name for name in self._there if name not in self._taken | unused and not name.endswith(COMPUTED)]
        if left:
            raise CheckpointError(
                f"{self._source}: the tensor {left[0]!r:.100} has no counterpart in a gpt, which has no biases and "
                f"only the parts of a Llama. Pass a model without it."
            )


def _shape(config: GPTConfig, part: str) -> list[int]:
    q_rows, kv_rows, _ = config.qkv_rows
    width, d_ff, table = config.d_model, config.feed_forward_width, [config.required_vocab_size, config.d_model]
    shapes = {
        "embedding.weight": table,
        "head.weight": table,
        "attention.q": [q_rows, width],
        "attention.k": [kv_rows, width],
        "attention.v": [kv_rows, width],
        "attention.q_norm.weight": [config.head_dim],
        "attention.k_norm.weight": [config.head_dim],
        "attention.output.weight": [width, q_rows],
        "feed_forward.gate": [d_ff, width],
        "feed_forward.up": [d_ff, width],
        "feed_forward.down.weight": [width, d_ff],
    }
    return shapes.get(part, [width])
