"""TrainConfig: everything that decides how a model is trained, from presets, YAML files and options.

An option that counts steps (`val_check_interval`, `checkpoint_interval`, `sample_interval`, `warmup_steps`) may also be
a fraction of the run: 500 is every 500 steps, 0.1 is every tenth of the run. `resolved` turns all such wishes into
numbers; what it returns stands in config.json of the run and is compared when a run goes on.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from gristmill.arguments import nearest
from gristmill.errors import CheckpointError, OptionError, VocabSizeError, warn_user
from gristmill.lm.explain import CONFIG_FILE, why_no_run
from gristmill.lm.training.config_checks import check_config
from gristmill.lm.training.presets import MODEL_DEFAULTS, preset_options, without_length
from gristmill.packages import load_package
from gristmill.small_files import parse_json, read_small_file

if TYPE_CHECKING:
    from gristmill.lm.data.training_data import TrainingData

__all__ = ["DeviceName", "PrecisionName", "TrainConfig", "differences", "read_config", "resolved"]

DeviceName: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]
PrecisionName: TypeAlias = Literal["auto", "bf16-mixed", "16-mixed", "32"]

MAX_CONFIG_BYTES = 1 << 20  # a config has a few kilobytes

# What may change between a run and the run that goes on with it: the weights do not depend on it.
FREE = frozenset(
    {
        "val_check_interval",
        "limit_val_batches",
        "checkpoint_interval",
        "keep",
        "log",
        "log_interval",
        "sample_interval",
        "sample_prompt",
        "sample_tokens",
        # Where the data lies and how it is read; that it is the same data is compared by its fingerprint.
        "tokenizer",
        "text_column",
        "tokens_column",
        "embedding_columns",
        "cache_dir",
        "init_from",
        "num_workers",
        "pin_memory",
        "prefetch_factor",
        "disable_metrics_monitoring",
        "fast_detection",
        "update_frequency",
        "plot_frequency",
        "window_size",
    }
)
# Where and how a step is computed. With another value it is the same step to rounding, not to the bit.
ROUNDING = frozenset(
    {
        "batch_size",
        "gradient_accumulation_steps",
        "precision",
        "compile_model",
        "compile_mode",
        "device",
        "devices",
        "num_nodes",
        "strategy",
        "deterministic",
    }
)
# Those of them that say how a step is divided.
PORTIONS = frozenset({"batch_size", "gradient_accumulation_steps", "devices", "num_nodes"})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained. Fields that are None or "auto" are settled by `resolved`."""

    model: Literal["gpt", "vae"] = "gpt"
    """gpt (a decoder that continues text) or vae (a sequence VAE, one sequence a document)."""
    vocab_size: int | None = None
    """Tokens that the model knows. None: those of the tokenizer of the data."""
    context_length: int = 256
    """Tokens that a sequence has, and that the model sees."""
    num_layers: int = 4
    """Layers of the model."""
    num_heads: int = 4
    """Heads of attention in a layer."""
    d_model: int = 256
    """Numbers that stand for a token between the layers."""
    d_ff: int | None = None
    """Numbers inside the feed-forward part. None: 8/3 of d_model, rounded up."""
    rope_theta: float = 10_000.0
    """Base of the rotary positions."""
    tie_embeddings: bool = False
    """The head is the embedding: fewer parameters."""
    dropout: float = 0.0
    """Share of activations that are dropped in training."""
    norm_eps: float = 1e-5
    """What keeps a norm from dividing by 0."""
    float32_residual: bool = False
    """Keep the residual stream in float32 under bf16-mixed: slower, and seldom better."""

    # Of the VAE alone
    max_sequence_length: int = 1000
    """VAE: tokens of a sequence; what a document has beyond them is left out."""
    encoder_layers: int | None = None
    """VAE: layers of the encoder. None: num_layers, which are those of the decoder."""
    latent_dim: int = 32
    """VAE: numbers that a sequence becomes."""
    latent_injection: Literal["memory", "embedding"] = "memory"
    """VAE: how the decoder gets them: as positions before the sequence, or added to each token."""
    memory_tokens: int = 4
    """VAE: positions before the sequence that hold the latent."""
    embedding_dim: int | None = None
    """VAE: numbers of a vector, for sequences of vectors. None: as the data has it."""
    kl_weight: float = 1.0
    """VAE: the highest weight of the KL term; 1 is the bound itself, less is a beta-VAE."""
    kl_schedule: Literal["constant", "linear", "cyclical"] = "linear"
    """VAE: how the weight gets there: at once, rising once, or rising again in each cycle."""
    kl_warmup_steps: int | float = 0.1
    """VAE: steps in which it rises (linear), or their share of the run."""
    kl_cycles: int = 4
    """VAE: cycles of the run (cyclical); it rises in the first half of each."""
    free_bits: float = 0.25
    """VAE: nats of KL that cost nothing; 0: all of it costs."""
    free_bits_mode: Literal["total", "dimension"] = "dimension"
    """VAE: free nats of a sequence, or of each latent dimension."""
    word_dropout: float = 0.0
    """VAE: share of the decoder's inputs that are hidden, so that it must ask the latent."""
    batch_norm_mu: float = 0.0
    """VAE: scale of a batch norm on mu, which keeps KL above 0 (0.5 is usual); 0: none."""
    bag_of_words_weight: float | None = None
    """VAE: weight of predicting a sequence's words from its latent alone. None: 1, for vectors 0."""

    tokenizer: str | None = None
    """VAE: the tokenizer for a text column of Parquet files."""
    text_column: str | None = None
    """VAE: the column of texts in Parquet files. None: 'text', if there is one, or 'tokens'."""
    tokens_column: str | None = None
    """VAE: the column of token ids in Parquet files."""
    embedding_columns: str | None = None
    """VAE: the columns of vectors in Parquet files, as 'a' or 'a,b' (joined)."""
    val_fraction: float = 0.01
    """VAE: share of the documents of Parquet files that are kept for validation."""
    cache_dir: str | None = None
    """VAE: where what was read from Parquet files is kept. None: the user's cache folder."""
    use_dynamic_padding: bool = False
    """VAE: pad to the longest of similar lengths, not to max_sequence_length."""
    num_buckets: int = 16
    """VAE: lengths that are padded to."""
    num_workers: int = 8
    """VAE: processes that prepare batches from Parquet files; 0: a thread."""
    pin_memory: bool = True
    """VAE: copy batches to the GPU from page-locked memory."""
    prefetch_factor: int = 2
    """VAE: batches that each of the processes is ahead."""

    disable_metrics_monitoring: bool = False
    """VAE: no watch for posterior collapse; it then takes no memory and no time."""
    fast_detection: bool = False
    """VAE: a cheaper watch: where nothing else is said, a look every 200 steps, plots every 2,000."""
    update_frequency: int | None = None
    """VAE: steps between two looks at the posterior. None: 100."""
    plot_frequency: int | None = None
    """VAE: steps between two plots of it; 0: none. None: 1000."""
    window_size: int | None = None
    """VAE: steps whose posteriors are looked at together. None: 50."""

    batch_size: int | Literal["auto"] = 32
    """Sequences that one device takes at once (VAE: 4). auto: as many as fit, the global batch kept."""
    gradient_accumulation_steps: int = 1
    """Micro-batches in a step (VAE: 2): saves memory, not time."""
    global_batch_size: int | None = None
    """Sequences in a step on all devices. None: what batch_size and accumulation make."""
    max_steps: int | None = None
    """How long to train, in steps. Or:"""
    max_tokens: int | None = None
    """How long to train, in tokens. Or:"""
    epochs: float | None = None
    """How long to train, in passes over the data; 1 if no length is given."""
    document_mask: bool = False
    """Attention stays inside a document."""
    seed: int = 0
    """Decides weights, order of the data and dropout."""
    init_from: str | None = None
    """Begin with the weights of another run: its folder. Its best checkpoint is taken."""

    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw, or muon for the matrices inside the model and adamw for the rest."""
    learning_rate: float = 1e-3
    """The highest learning rate, of AdamW."""
    warmup_steps: int | float = 0.02
    """Steps in which the learning rate rises, or their share of the run."""
    schedule: Literal["cosine", "wsd", "constant"] = "cosine"
    """How the learning rate falls: cosine, wsd (stable, then decay) or constant."""
    final_fraction: float = 0.1
    """Share of the learning rate that is left at the end."""
    decay_fraction: float = 0.2
    """Share of the run in which it falls, for wsd."""
    weight_decay: float = 0.1
    """Decay of matrices."""
    beta1: float = 0.9
    """AdamW's momentum."""
    beta2: float = 0.95
    """AdamW's memory of squares."""
    eps: float = 1e-8
    """AdamW's epsilon."""
    muon_learning_rate: float = 0.02
    """The highest learning rate of Muon."""
    muon_momentum: float = 0.95
    """Muon's momentum."""
    clip_norm: float = 1.0
    """Norm to which gradients are clipped; 0: no clipping."""

    precision: PrecisionName = "auto"
    """auto: bf16-mixed where the device has it, otherwise 32."""
    compile_model: bool = False
    """Compile the model: a minute at the start, then faster."""
    compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "default"
    """Mode of torch.compile."""
    device: DeviceName = "auto"
    """What to compute on."""
    devices: int = 1
    """How many of them, on each node."""
    num_nodes: int = 1
    """Machines; start the command on each, with MASTER_ADDR, MASTER_PORT and NODE_RANK set."""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """How several devices share the work: ddp (each has all weights) or fsdp (each has a part)."""
    deterministic: bool = False
    """The same bits on a GPU too, where that costs speed."""

    val_check_interval: int | float = 0.1
    """Steps between validations, or their share of the run."""
    limit_val_batches: int | float | None = 32
    """Batches of a validation, or their share (VAE: 0.1): a fixed subset. At the end all are taken."""
    checkpoint_interval: int | float = 1000
    """Steps between checkpoints, or their share of the run."""
    keep: int = 2
    """Latest checkpoints to keep, beside the best."""
    log_interval: int = 10
    """Steps between records."""
    log: Literal["none", "tensorboard", "trackio"] = "none"
    """Where to show numbers besides metrics.jsonl."""
    sample_interval: int | float = 0
    """Steps between sample texts, or their share of the run; 0: none."""
    sample_prompt: str = "Once upon a time"
    """What samples begin with."""
    sample_tokens: int = 64
    """Length of a sample."""

    def __post_init__(self) -> None:
        check_config(self)

    @classmethod
    def from_options(
        cls, options: Mapping[str, Any], *, preset: str | None = None, source: str = "the options"
    ) -> TrainConfig:
        """The preset with the options on top; an unknown name is an error that suggests the nearest one.

        >>> TrainConfig.from_options({"max-steps": 10}, preset="quickstart").max_steps
        10
        """
        given = normalized(options, source)
        return cls(**{**without_length(preset_options(preset, given), given), **given})

    @classmethod
    def of(cls, options: Mapping[str, Any], *, preset: str | None = None, source: str = "the options") -> TrainConfig:
        """Deprecated: the old name of `from_options`."""
        warn_user("TrainConfig.of is deprecated. Call TrainConfig.from_options.", DeprecationWarning)
        return cls.from_options(options, preset=preset, source=source)

    @property
    def sequence_length(self) -> int:
        """The tokens that a sequence can have."""
        return self.context_length if self.model == "gpt" else self.max_sequence_length

    def to_json(self) -> dict[str, Any]:
        """Every field; what `TrainConfig.from_options` reads."""
        return dataclasses.asdict(self)


# What other trainers call these options, too far from our names for a spelling check.
OTHER_NAMES = {
    "block_size": "context_length",
    "grad_accum": "gradient_accumulation_steps",
    "iters": "max_steps",
    "max_iters": "max_steps",
    "n_embd": "d_model",
    "n_head": "num_heads",
    "n_layer": "num_layers",
    "seq_len": "context_length",
    "steps": "max_steps",
}
FIELDS = {field.name: field for field in dataclasses.fields(TrainConfig)}


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options in a YAML (or JSON) file, with the names of `TrainConfig`."""
    yaml = load_package("yaml", needed_by="reading a YAML file")
    data = read_small_file(path, what="a config", max_bytes=MAX_CONFIG_BYTES, error=OptionError)
    try:
        content = yaml.safe_load(data.decode())
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a ValueError: a date that no calendar has
        raise OptionError(f"{path}: it is not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise OptionError(f"{path}: it holds a {type(content).__name__}. Write one option a line: 'max_steps: 1000'.")
    return normalized(content, str(path))


def normalized(options: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The options under their names in `TrainConfig`.

    Numbers that YAML took for text (1e-3) are numbers, and text that it took for a number (a column 2020) is text.
    """
    given: dict[str, Any] = {}
    for key, value in options.items():
        name = str(key).replace("-", "_")
        if name not in FIELDS:
            hint = nearest(OTHER_NAMES.get(name, name), FIELDS) or f" The options are {', '.join(FIELDS)}."
            raise OptionError(f"{source}: there is no option {str(key)!r}.{hint}")
        if name == "embedding_columns" and isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        kind = str(FIELDS[name].type)
        if "float" in kind:
            value = _as_number(value)
        elif kind in ("str", "str | None") and isinstance(value, int | float):
            value = str(value)
        given[name] = value
    return given


def _as_number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def resolved(config: TrainConfig, data: TrainingData, *, batch_size: int, world_size: int) -> TrainConfig:
    """The config of a run on this data: every number settled, for `batch_size` sequences on each device."""
    accumulation = _accumulation(config, batch_size, world_size)
    tokens_per_step = batch_size * accumulation * world_size * data.tokens_per_sequence(config)
    max_steps = _num_steps(config, data.num_tokens, tokens_per_step)
    return dataclasses.replace(
        config,
        vocab_size=_vocab_size(config, data),
        embedding_dim=_embedding_dim(config, data),
        bag_of_words_weight=_bag_of_words_weight(config, data),
        **_frequencies(config),
        batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        global_batch_size=batch_size * accumulation * world_size,
        max_steps=max_steps,
        max_tokens=None,
        epochs=None,
        warmup_steps=_steps(config.warmup_steps, max_steps, least=0),
        kl_warmup_steps=_steps(config.kl_warmup_steps, max_steps, least=0),
        val_check_interval=_steps(config.val_check_interval, max_steps),
        checkpoint_interval=_steps(config.checkpoint_interval, max_steps),
        sample_interval=_steps(config.sample_interval, max_steps),
    )


def asked_global_batch(config: TrainConfig, world_size: int) -> int:
    """The sequences of a step that were asked for, whatever `batch_size` turns out to be."""
    if config.global_batch_size is not None:
        return config.global_batch_size
    default = MODEL_DEFAULTS.get(config.model, {}).get("batch_size", TrainConfig.batch_size)
    per_device = default if config.batch_size == "auto" else config.batch_size
    assert isinstance(per_device, int)
    return per_device * config.gradient_accumulation_steps * world_size


def _accumulation(config: TrainConfig, batch_size: int, world_size: int) -> int:
    total = asked_global_batch(config, world_size)
    if total % (batch_size * world_size):
        devices = f" on {world_size} devices" if world_size > 1 else ""
        raise OptionError(
            f"global_batch_size={total} is not a multiple of batch_size={batch_size}{devices}. "
            f"Pass a multiple of {batch_size * world_size}, or batch_size='auto'."
        )
    return total // (batch_size * world_size)


def _num_steps(config: TrainConfig, num_tokens: int, tokens_per_step: float) -> int:
    if config.max_steps is not None:
        return config.max_steps
    tokens = config.max_tokens if config.max_tokens is not None else (config.epochs or 1.0) * num_tokens
    return max(1, math.floor(tokens / tokens_per_step))


def _vocab_size(config: TrainConfig, data: TrainingData) -> int | None:
    needed = data.vocab_size
    if needed is None:
        return None
    if config.vocab_size is not None and config.vocab_size < needed:
        has = "there are ids up to" if data.tokenizer is None else f"the tokenizer of the {data.noun} has"
        number = f"{needed - 1:,}" if data.tokenizer is None else f"{needed:,} tokens"
        raise VocabSizeError(
            f"vocab_size={config.vocab_size} is too small: {has} {number}. "
            f"Pass vocab_size >= {needed}, or leave it out."
        )
    return config.vocab_size or needed


def _embedding_dim(config: TrainConfig, data: TrainingData) -> int | None:
    if config.embedding_dim not in (None, data.embedding_dim):
        there = "tokens" if data.embedding_dim is None else f"vectors of {data.embedding_dim} numbers"
        raise OptionError(f"embedding_dim={config.embedding_dim}, and the data has {there}. Leave it out.")
    return data.embedding_dim


def _bag_of_words_weight(config: TrainConfig, data: TrainingData) -> float | None:
    if config.bag_of_words_weight is not None or config.model != "vae":
        return config.bag_of_words_weight
    return 1.0 if data.embedding_dim is None else 0.0


def _frequencies(config: TrainConfig) -> dict[str, Any]:
    """How often the posterior of a VAE is looked at: as was said, otherwise as usual."""
    if config.model != "vae":
        return {}
    usual = {"update_frequency": 100, "plot_frequency": 1000, "window_size": 50}
    usual |= {"update_frequency": 200, "plot_frequency": 2000} if config.fast_detection else {}
    return {name: number if getattr(config, name) is None else getattr(config, name) for name, number in usual.items()}


def _steps(interval: int | float, max_steps: int, *, least: int = 1) -> int:
    """A number of steps: an int is one, a float is a fraction of the run."""
    if isinstance(interval, int):
        return interval
    return max(least, round(interval * max_steps)) if interval else 0


def differences(there: Mapping[str, Any], now: Mapping[str, Any], *, only_rounding: bool = False) -> list[str]:
    """What is not the same in two resolved configs, in words: what the weights depend on, or on which by rounding.

    >>> differences({"seed": 0, "keep": 2}, {"seed": 1, "keep": 3})
    ['seed was 0 and is now 1']
    """
    # The sequences of a VAE's step are drawn by what one micro-batch of all devices holds.
    rounding = ROUNDING - PORTIONS if now.get("model") == "vae" else ROUNDING
    compared = sorted(rounding) if only_rounding else [name for name in FIELDS if name not in FREE | rounding]
    return [
        f"{name} was {there.get(name)!r} and is now {now.get(name)!r}"
        for name in compared
        if there.get(name) != now.get(name)
    ]


def load_config(run: Path) -> TrainConfig:
    """The config of a run folder."""
    path = run / CONFIG_FILE
    try:
        data = read_small_file(path, what="a config", max_bytes=MAX_CONFIG_BYTES, error=CheckpointError)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(why_no_run(run)) from None
    content = parse_json(data, source=path, error=CheckpointError)
    try:
        return TrainConfig.from_options(content, source=str(path))
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{path}: it is damaged: {error}") from None
