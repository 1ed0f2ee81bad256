"""Conversion between GPTConfig, configs of transformers, and metadata of llama.cpp, for the Llama family.

The GPT is a Llama model: pre-norm RMSNorm, rotary positions, SwiGLU, no biases. The matching class elsewhere:

| option | transformers | llama.cpp |
|---|---|---|
| none, `num_kv_heads` | `LlamaForCausalLM` | `llama` |
| `sliding_window` | `MistralForCausalLM` | no architecture with a window and no other difference: rejected |
| `qk_norm`, with or without the others | `Qwen3ForCausalLM` | `qwen3`; rejected with a window |

`llama_weights.py` converts the weights.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gristmill.errors import CheckpointError, OptionError

if TYPE_CHECKING:
    from gristmill.lm.models.gpt.options import GPTConfig

__all__ = ["FAMILY", "gguf_config", "huggingface_config", "options_of_huggingface"]

# The transformers classes equivalent to our GPT, by the `model_type` of their config.json.
FAMILY = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen3": "Qwen3ForCausalLM"}
# Defaults of fields that are missing in config.json.
THETA, NORM_EPS, WINDOW = 10_000.0, 1e-6, 4096
LENGTHS = {"llama": 2048, "mistral": 131_072, "qwen3": 32_768}
KV_HEADS = {"mistral": 8, "qwen3": 32}
QWEN_HEAD_DIM, QWEN_FULL_LAYERS = 128, 28


# Export


def huggingface_type(config: GPTConfig) -> str:
    """Return the `model_type` of the transformers class that computes this model."""
    if config.qk_norm:
        return "qwen3"
    return "llama" if config.sliding_window is None else "mistral"


def huggingface_config(config: GPTConfig, *, vocab_size: int) -> dict[str, Any]:
    """Return the config.json of the exported model, without the ids of special tokens and the dtype of the weights."""
    kind = huggingface_type(config)
    fields: dict[str, Any] = {
        "architectures": [FAMILY[kind]],
        "model_type": kind,
        "vocab_size": vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.feed_forward_width,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": config.tie_embeddings,
        "use_cache": True,
    }
    if kind == "mistral":
        return fields | {"sliding_window": config.sliding_window}
    if kind == "qwen3":
        return fields | _qwen_window(config)
    return fields


def _qwen_window(config: GPTConfig) -> dict[str, Any]:
    if config.sliding_window is None:
        return {"use_sliding_window": False, "sliding_window": None, "layer_types": _layers("full", config.num_layers)}
    return {
        "use_sliding_window": True,
        "sliding_window": config.sliding_window,
        "max_window_layers": 0,  # layers from this one on have a window
        "layer_types": _layers("sliding", config.num_layers),
    }


def _layers(kind: str, number: int) -> list[str]:
    return [f"{kind}_attention"] * number


def gguf_config(config: GPTConfig, *, vocab_size: int) -> dict[str, Any]:
    """Return the metadata of the model for llama.cpp; `OptionError` for a window, which it does not support."""
    if config.sliding_window is not None and config.sliding_window < config.context_length:
        raise OptionError(
            f"sliding_window={config.sliding_window}: llama.cpp has no architecture for this model with a window, and "
            f"without the window the text would differ after {config.sliding_window:,} tokens. Pass "
            f"format='huggingface', which transformers and vLLM read."
        )
    architecture = "qwen3" if config.qk_norm else "llama"
    fields: dict[str, Any] = {
        "vocab_size": vocab_size,
        "context_length": config.context_length,
        "embedding_length": config.d_model,
        "block_count": config.num_layers,
        "feed_forward_length": config.feed_forward_width,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": float(config.norm_eps),
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": float(config.rope_theta),
    }
    return {"general.architecture": architecture} | {f"{architecture}.{name}": fields[name] for name in fields}


# Import


def options_of_huggingface(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the options of a GPT with the sizes in a config.json; `CheckpointError` for unsupported features.

    source: the path of the file, for messages.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILY:
        raise CheckpointError(
            f"{source}: model_type={kind!r:.60} is not supported. Pass the folder of a Llama, Mistral or Qwen3 model "
            f"(model_type {', '.join(map(repr, FAMILY))})."
        )
    read = _Reader(config, source)
    d_model, num_heads = read.count("hidden_size"), read.count("num_attention_heads")
    _check_no_other_parts(config, source)
    _check_head_dim(config, d_model, num_heads, source)
    return {
        "vocab_size": read.count("vocab_size"),
        "context_length": read.count("max_position_embeddings", default=LENGTHS[kind]),
        "num_layers": read.count("num_hidden_layers"),
        "num_heads": num_heads,
        "num_kv_heads": read.count("num_key_value_heads", default=KV_HEADS.get(kind, num_heads)),
        "d_model": d_model,
        "d_ff": read.count("intermediate_size"),
        "rope_theta": _theta(config, read),
        "norm_eps": read.positive("rms_norm_eps", default=NORM_EPS),
        "tie_embeddings": config.get("tie_word_embeddings", False) is True,
        "qk_norm": kind == "qwen3",
        "sliding_window": _window(config, kind, read),
    }


class _Reader:
    """Reads and checks numbers of a config.json."""

    def __init__(self, config: Mapping[str, Any], source: str) -> None:
        self._config, self.source = config, source

    def count(self, name: str, *, default: int | None = None) -> int:
        """Return a whole number of at least 1."""
        value = self._config.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
            raise self.unfit(name, value, "a whole number >= 1")
        return value

    def positive(self, name: str, *, default: float, within: Mapping[str, Any] | None = None) -> float:
        """Return a number above 0."""
        value = (self._config if within is None else within).get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            raise self.unfit(name, value, "a number > 0")
        return float(value)

    def unfit(self, name: str, value: Any, needed: str) -> CheckpointError:
        """Return the error for an invalid value."""
        return CheckpointError(
            f"{self.source}: {name} must be {needed}, got {value!r:.60}. The file is damaged: copy it again."
        )


def _check_no_other_parts(config: Mapping[str, Any], source: str) -> None:
    """Raise `CheckpointError` for parts that our GPT does not have, because its logits would differ."""
    for name in ("attention_bias", "mlp_bias"):
        if config.get(name):
            raise CheckpointError(f"{source}: {name} is on, but a gpt has no biases. Pass a model without biases.")
    if config.get("hidden_act", "silu") not in ("silu", "swish"):
        raise CheckpointError(
            f"{source}: hidden_act is {config['hidden_act']!r:.60}, but a gpt uses 'silu'. Pass a model with 'silu'."
        )
    if config.get("quantization_config") is not None:
        raise CheckpointError(f"{source}: the weights are quantized (quantization_config). Pass the original model.")
    if any(place.get("partial_rotary_factor") not in (None, 1) for place in (config, *_rope(config))):
        raise CheckpointError(
            f"{source}: partial_rotary_factor is set, but a gpt rotates whole heads. Pass a model without it."
        )
    for place in _rope(config):
        kind = place.get("rope_type", place.get("type", "default"))
        if kind != "default":
            raise CheckpointError(
                f"{source}: its rotary positions are scaled (rope_type {kind!r:.60}), which a gpt does not support. "
                f"Pass a model without rope_scaling."
            )


def _rope(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the descriptions of rotary positions.

    They are in `rope_scaling` of transformers 4 and in `rope_parameters` of transformers 5.
    """
    found = [config.get(name) for name in ("rope_parameters", "rope_scaling")]
    return [each for each in found if isinstance(each, Mapping)]


def _theta(config: Mapping[str, Any], read: _Reader) -> float:
    inside = next((place for place in _rope(config) if "rope_theta" in place), None)
    return read.positive("rope_theta", default=THETA, within=inside)


def _check_head_dim(config: Mapping[str, Any], d_model: int, num_heads: int, source: str) -> None:
    head_dim = config.get("head_dim")
    default = QWEN_HEAD_DIM if config["model_type"] == "qwen3" else None
    head_dim = default if head_dim is None else head_dim
    if d_model % num_heads or head_dim not in (None, d_model // num_heads):
        raise CheckpointError(
            f"{source}: head_dim is {head_dim!r:.60}, but a gpt needs hidden_size / num_attention_heads = "
            f"{d_model / num_heads:g}. Pass a model in which both are equal."
        )


def _window(config: Mapping[str, Any], kind: str, read: _Reader) -> int | None:
    if kind == "llama" or (kind == "qwen3" and not config.get("use_sliding_window", False)):
        return None
    if kind == "mistral" and "sliding_window" in config and config["sliding_window"] is None:
        return None
    if kind == "qwen3" and _attention_of_qwen(config, read) == "full_attention":
        return None
    return read.count("sliding_window", default=WINDOW)


def _attention_of_qwen(config: Mapping[str, Any], read: _Reader) -> str:
    """Return the kind of attention of all layers; `CheckpointError` if they differ."""
    layers = config.get("layer_types")
    layers = _derived_layers(config, read) if layers is None else layers
    for kind in ("sliding_attention", "full_attention"):
        if isinstance(layers, list) and layers and all(layer == kind for layer in layers):
            return kind
    raise CheckpointError(
        f"{read.source}: layer_types is {layers!r:.100}, but a gpt has the same attention in every layer, "
        f"'sliding_attention' or 'full_attention'. Pass a model in which all layers are the same."
    )


def _derived_layers(config: Mapping[str, Any], read: _Reader) -> list[str]:
    """Return the layer types that transformers derives for files of version 4, without `layer_types`.

    Layers from `max_window_layers` on have a window.
    """
    num_layers = read.count("num_hidden_layers")
    first = config.get("max_window_layers", QWEN_FULL_LAYERS)
    if isinstance(first, bool) or not isinstance(first, int):
        raise read.unfit("max_window_layers", first, "a whole number")
    if "sliding_window" in config and config["sliding_window"] is None:
        first = num_layers
    num_full = min(max(first, 0), num_layers)
    return _layers("full", num_full) + _layers("sliding", num_layers - num_full)
