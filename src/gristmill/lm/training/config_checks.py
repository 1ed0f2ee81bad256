"""What the fields of a `TrainConfig` may be."""

from __future__ import annotations

import functools
import math
import typing
from typing import TYPE_CHECKING, Any

from gristmill.arguments import check_whole_number
from gristmill.errors import OptionError

if TYPE_CHECKING:
    from gristmill.lm.training.config import TrainConfig

__all__ = ["check_config"]

_COUNTS = (
    *("context_length", "num_layers", "num_heads", "d_model", "gradient_accumulation_steps"),
    *("devices", "num_nodes", "keep", "log_interval", "sample_tokens"),
    *("max_sequence_length", "latent_dim", "memory_tokens", "kl_cycles", "num_buckets", "prefetch_factor"),
)
_OPTIONAL_COUNTS = (
    *("vocab_size", "d_ff", "global_batch_size", "max_steps", "max_tokens"),
    *("encoder_layers", "embedding_dim", "update_frequency", "window_size"),
)
_INTERVALS = ("val_check_interval", "checkpoint_interval", "sample_interval", "warmup_steps", "kl_warmup_steps")
_POSITIVE = ("learning_rate", "eps", "rope_theta", "norm_eps", "muon_learning_rate")
_NOT_NEGATIVE = ("weight_decay", "clip_norm", "kl_weight", "free_bits", "batch_norm_mu", "bag_of_words_weight")
_FRACTIONS = (
    *("dropout", "beta1", "beta2", "muon_momentum", "final_fraction", "decay_fraction"),
    *("word_dropout", "val_fraction"),
)
# Options that mean nothing to the other models: who passes one expects something of it.
_ONLY = {
    "gpt": ("context_length", "document_mask", "sample_prompt"),
    "vae": (
        *("max_sequence_length", "encoder_layers", "latent_dim", "latent_injection", "memory_tokens", "embedding_dim"),
        *("kl_weight", "kl_schedule", "kl_warmup_steps", "kl_cycles", "free_bits", "free_bits_mode", "word_dropout"),
        *("batch_norm_mu", "bag_of_words_weight", "tokenizer", "text_column", "tokens_column", "embedding_columns"),
        *("val_fraction", "cache_dir", "use_dynamic_padding", "num_buckets", "num_workers", "pin_memory"),
        *("prefetch_factor", "disable_metrics_monitoring", "fast_detection", "update_frequency", "plot_frequency"),
        "window_size",
    ),
}


def check_config(config: TrainConfig) -> None:
    """Raise `OptionError` for the first field that makes no sense, whatever the shards are."""
    for name, choices in _choices().items():
        if getattr(config, name) not in choices:
            raise OptionError(
                f"{name}={getattr(config, name)!r} is not known. Pass one of {', '.join(map(repr, choices))}."
            )
    for name, kind in _types().items():
        value = getattr(config, name)
        if kind is bool and not isinstance(value, bool):
            raise OptionError(f"{name}={value!r} is a {type(value).__name__}. Pass true or false.")
    for name in _COUNTS:
        _check_count(name, getattr(config, name))
    for name in _OPTIONAL_COUNTS:
        if getattr(config, name) is not None:
            _check_count(name, getattr(config, name))
    if config.batch_size != "auto":
        _check_count("batch_size", config.batch_size, "'auto'")
    for name in _INTERVALS:
        _check_interval(name, getattr(config, name))
    if config.limit_val_batches is not None:
        _check_interval("limit_val_batches", config.limit_val_batches)
    for name in (*_POSITIVE, *_NOT_NEGATIVE, *_FRACTIONS):
        if getattr(config, name) is not None or name != "bag_of_words_weight":  # None: as the data asks for
            _check_float(name, getattr(config, name))
    if config.optimizer == "muon" and config.strategy == "fsdp":
        raise OptionError("optimizer='muon' needs whole matrices, and strategy='fsdp' divides them. Pass one of them.")
    for name, nothing in (("num_workers", "a thread"), ("plot_frequency", "no plots")):
        if getattr(config, name) is not None and check_whole_number(name, getattr(config, name)) < 0:
            raise OptionError(f"{name}={getattr(config, name)} is negative. Pass 0 for {nothing}, or more.")
    _check_belongs(config)
    _check_length(config)
    _check_shape(config)


def _check_belongs(config: TrainConfig) -> None:
    """An option of another model that differs from its default was meant to do something, and does not."""
    for model, names in _ONLY.items():
        if model == config.model:
            continue
        for name in names:
            value = getattr(config, name)
            # kl_warmup_steps of a run is a number of steps, whichever model it has.
            if value != type(config).__dataclass_fields__[name].default and name != "kl_warmup_steps":
                instead = ", pass max_sequence_length" if name == "context_length" else ""
                raise OptionError(
                    f"{name}={value!r} is an option of model={model!r}, and this is model={config.model!r}. "
                    f"Leave it out{instead}, or pass model={model!r}."
                )


def _choices() -> dict[str, tuple[str, ...]]:
    """What the fields with a choice of words may be."""
    types = _types()
    return {name: typing.get_args(kind) for name, kind in types.items() if typing.get_origin(kind) is typing.Literal}


@functools.cache
def _types() -> dict[str, Any]:
    from gristmill.lm.training.config import TrainConfig

    return typing.get_type_hints(TrainConfig)


def _check_count(name: str, value: Any, otherwise: str = "") -> None:
    if check_whole_number(name, value) < 1:
        raise OptionError(f"{name}={value} is too small. Pass {name} >= 1{f', or {otherwise}' if otherwise else ''}.")


def _check_interval(name: str, value: Any) -> None:
    _check_is_number(name, value)
    if not value >= 0 or (isinstance(value, float) and value > 1):  # not a number is neither
        raise OptionError(f"{name}={value!r}: pass a whole number, or a fraction between 0 and 1.")


def _check_float(name: str, value: Any) -> None:
    _check_is_number(name, value)
    if name in _POSITIVE and not 0 < value < math.inf:
        raise OptionError(f"{name}={value!r} must be greater than 0.")
    if name in _NOT_NEGATIVE and not 0 <= value < math.inf:
        raise OptionError(f"{name}={value!r} must be 0 or greater.")
    if name in _FRACTIONS and not 0 <= value <= (1 if name.endswith("fraction") else 0.999_999):
        raise OptionError(f"{name}={value!r} must lie between 0 and 1.")


def _check_is_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OptionError(f"{name}={value!r} is a {type(value).__name__}. Pass a number.")


def _check_length(config: TrainConfig) -> None:
    given = [name for name in ("max_steps", "max_tokens", "epochs") if getattr(config, name) is not None]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} are both given, and each says how long to train. Pass one of them.")
    if config.epochs is not None:
        _check_is_number("epochs", config.epochs)
        if not 0 < config.epochs < math.inf:
            raise OptionError(f"epochs={config.epochs!r} must be greater than 0.")


def _check_shape(config: TrainConfig) -> None:
    if config.d_model % config.num_heads:
        raise OptionError(
            f"d_model={config.d_model} is not a multiple of num_heads={config.num_heads}. Pass one that each head can "
            f"take an equal part of."
        )
    if (config.d_model // config.num_heads) % 2:
        raise OptionError(
            f"d_model={config.d_model} and num_heads={config.num_heads} give heads of size "
            f"{config.d_model // config.num_heads}: rotary positions need an even one."
        )
    if check_whole_number("seed", config.seed) < 0:
        raise OptionError(f"seed={config.seed} is negative. Pass seed >= 0.")
