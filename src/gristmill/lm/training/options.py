"""TrainOptions: the options of `train`, for type checkers and help(). A test compares them with the configs.

They are the options of a run and of the built-in models. `train` also accepts the options of a registered model.
"""

from __future__ import annotations

import textwrap
from typing import Any, Literal, TypedDict

from gristmill.lm.models.config import ModelConfig
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.models.registry import BUILT_IN, MODELS
from gristmill.lm.option_types import option_fields, option_meanings
from gristmill.lm.training.config import DeviceName, Float8, PrecisionName, TrainConfig

__all__ = ["TrainOptions", "options_help", "train_defaults"]


class TrainOptions(TypedDict, total=False):
    """Keyword options of `train` and `plan`: those of a run and those of its model."""

    model: str | ModelConfig
    vocab_size: int | None
    context_length: int
    num_layers: int
    num_heads: int
    num_kv_heads: int | None
    d_model: int
    d_ff: int | None
    rope_theta: float
    output_init: Literal["scaled", "zero"]
    qk_norm: bool
    sliding_window: int | None
    tie_embeddings: bool
    dropout: float
    norm_eps: float
    float32_residual: bool
    max_sequence_length: int
    encoder_layers: int | None
    latent_dim: int
    encoder_shortcut: bool
    latent_injection: Literal["memory", "embedding"]
    memory_tokens: int
    embedding_dim: int | None
    kl_weight: float
    kl_schedule: Literal["constant", "linear", "cyclical"]
    kl_warmup_steps: int | float
    kl_cycles: int
    free_bits: float
    free_bits_mode: Literal["total", "dimension"]
    word_dropout: float
    batch_norm_mu: float
    bag_of_words_weight: float | None
    tokenizer: str | None
    text_column: str | None
    tokens_column: str | None
    embedding_columns: str | None
    val_fraction: float
    cache_dir: str | None
    use_dynamic_padding: bool
    num_buckets: int
    num_workers: int
    pin_memory: bool
    prefetch_factor: int
    disable_metrics_monitoring: bool
    fast_detection: bool
    update_frequency: int | None
    plot_frequency: int | None
    window_size: int | None
    batch_size: int | Literal["auto"]
    gradient_accumulation_steps: int
    global_batch_size: int | None
    max_steps: int | None
    max_tokens: int | None
    epochs: float | None
    document_mask: bool
    shift_windows: bool
    conversations: bool
    chat_template: str | None
    seed: int
    init_from: str | None
    optimizer: str
    learning_rate: float
    warmup_steps: int | float
    schedule: str
    final_fraction: float
    decay_fraction: float
    weight_decay: float
    beta1: float
    beta2: float
    eps: float
    muon_learning_rate: float
    muon_momentum: float
    clip_norm: float
    precision: PrecisionName
    kernels: Literal["auto", "plain"]
    float8: Float8
    compile_model: bool
    compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
    cuda_graphs: Literal["auto", "off"]
    activation_checkpointing: bool
    device: DeviceName
    devices: int
    num_nodes: int
    strategy: Literal["auto", "ddp", "fsdp"]
    deterministic: bool
    val_check_interval: int | float
    limit_val_batches: int | float | None
    checkpoint_interval: int | float
    keep: int
    log_interval: int
    log: Literal["none", "tensorboard", "csv", "wandb", "trackio"]
    sample_interval: int | float
    sample_prompt: str
    sample_tokens: int


def options_help() -> str:
    """Return one paragraph per option for help(): the options of every run, then those of each model."""
    sections: dict[str, Any] = {"Options of every run:": TrainConfig}
    sections |= {f"Options of model={name!r}:": MODELS[name].config for name in sorted(BUILT_IN)}
    return "\n\n".join(
        "\n".join([title, *map(_paragraph, option_meanings(kind).items())]) for title, kind in sections.items()
    )


def _paragraph(option: tuple[str, str]) -> str:
    name, meaning = option
    return textwrap.fill(f"{name}: {meaning}", 116, subsequent_indent="    ", break_on_hyphens=False)


TrainOptions.__doc__ = f"{TrainOptions.__doc__ or ''}\n\n{options_help()}"  # shown by `show_options`


def train_defaults() -> dict[str, Any]:
    """Return the default of each option."""
    defaults: dict[str, Any] = {"model": GPTConfig.name}
    for kind in (*(MODELS[name].config for name in sorted(BUILT_IN)), TrainConfig):
        defaults |= {name: field.default for name, field in option_fields(kind).items() if name != "model"}
    return defaults
