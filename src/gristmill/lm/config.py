"""TrainConfig: everything that decides how a model is trained, from presets, YAML files and options.

An option that counts steps (`val_check_interval`, `checkpoint_interval`, `sample_interval`, `warmup_steps`) may also be
a fraction of the run: 500 is every 500 steps, 0.1 is every tenth of the run. `resolved` turns all such wishes into
numbers; what it returns stands in config.json of the run and is compared when a run goes on.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gristmill.errors import CheckpointError, OptionError, VocabSizeError
from gristmill.lm.config_checks import check_config

if TYPE_CHECKING:
    from gristmill.shards import Shards

__all__ = ["PRESETS", "TrainConfig", "differences", "read_config", "resolved"]

CONFIG_FILE = "config.json"

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


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained. Fields that are None or "auto" are settled by `resolved`."""

    model: Literal["gpt"] = "gpt"
    """Which model: the names in gristmill.lm.MODELS."""
    vocab_size: int | None = None
    """Tokens that the model knows. None: those of the tokenizer of the shards."""
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

    batch_size: int | Literal["auto"] = 32
    """Sequences that one device takes at once. auto: as many as fit, the global batch kept."""
    gradient_accumulation_steps: int = 1
    """Micro-batches in a step: saves memory, not time."""
    global_batch_size: int | None = None
    """Sequences in a step on all devices. None: what batch_size and accumulation make."""
    max_steps: int | None = None
    """How long to train, in steps. Or:"""
    max_tokens: int | None = None
    """How long to train, in tokens. Or:"""
    epochs: float | None = None
    """How long to train, in passes over the shards (default: 1)."""
    document_mask: bool = False
    """Attention stays inside a document."""
    seed: int = 0
    """Decides weights, order of the data and dropout."""

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

    precision: Literal["auto", "bf16-mixed", "16-mixed", "32"] = "auto"
    """auto: bf16-mixed where the device has it, otherwise 32."""
    compile_model: bool = False
    """Compile the model: a minute at the start, then faster."""
    compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "default"
    """Mode of torch.compile."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
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
    """Batches of a validation, or their share: a fixed subset. At the end all are taken."""
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
    def of(cls, options: Mapping[str, Any], *, preset: str | None = None, source: str = "the options") -> TrainConfig:
        """The preset with the options on top; an unknown name is an error that says which one is meant.

        >>> TrainConfig.of({"max-steps": 10}, preset="quickstart").max_steps
        10
        """
        given = normalized(options, source)
        return cls(**{**without_length(preset_options(preset), given), **given})

    def to_json(self) -> dict[str, Any]:
        """Every field; what `TrainConfig.of` reads."""
        return dataclasses.asdict(self)


FIELDS = {field.name: field for field in dataclasses.fields(TrainConfig)}

PRESETS: dict[str, dict[str, Any]] = {
    "quickstart": {
        "context_length": 128,
        "num_layers": 4,
        "num_heads": 4,
        "d_model": 128,
        "tie_embeddings": True,
        "batch_size": 8,
        "max_steps": 1000,
        "optimizer": "muon",
        "learning_rate": 4e-3,
        "muon_learning_rate": 0.012,
        "warmup_steps": 0.05,
        "checkpoint_interval": 250,
        "limit_val_batches": 16,
        "val_check_interval": 200,
        "sample_interval": 200,
    },
    "tinystories-17m": {
        "context_length": 256,
        "num_layers": 4,
        "num_heads": 16,
        "d_model": 512,
        "d_ff": 1344,
        "batch_size": 256,
        "max_tokens": 327_680_000,
        "learning_rate": 2e-3,
        "warmup_steps": 200,
        "compile_model": True,
        "val_check_interval": 500,
        "sample_interval": 500,
    },
    "gpt2-124m": {
        "context_length": 1024,
        "num_layers": 12,
        "num_heads": 6,  # of 128, which attention kernels are fastest at; the same parameters as 12 of 64
        "d_model": 768,
        "tie_embeddings": True,
        "batch_size": 64,
        "global_batch_size": 512,
        "epochs": 1.0,
        "learning_rate": 6e-4,
        "warmup_steps": 700,
        "compile_model": True,
        "val_check_interval": 250,
        "sample_interval": 1000,
    },
}

LENGTHS = ("max_steps", "max_tokens", "epochs")


def preset_options(preset: str | None) -> dict[str, Any]:
    """What a preset sets; nothing for None."""
    if preset is None:
        return {}
    if preset not in PRESETS:
        raise OptionError(f"preset={preset!r} is not known. Pass one of {', '.join(map(repr, PRESETS))}.")
    return dict(PRESETS[preset])


def without_length(options: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a preset or file, less what those that go on top of it make void: its length, its portions."""
    if any(given.get(name) is not None for name in LENGTHS):
        options = {name: value for name, value in options.items() if name not in LENGTHS}
    if given.get("gradient_accumulation_steps") is not None and given.get("global_batch_size") is None:
        options.pop("global_batch_size", None)
    return options


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options in a YAML (or JSON) file, with the names of `TrainConfig`."""
    try:
        import yaml
    except ImportError:
        raise OptionError(f"{path}: reading YAML needs PyYAML. Run: pip install pyyaml.") from None
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: it is not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise OptionError(f"{path}: it holds a {type(content).__name__}. Write one option a line: 'max_steps: 1000'.")
    return normalized(content, str(path))


def normalized(options: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The options under their names in `TrainConfig`, numbers that YAML took for text (1e-3) as numbers."""
    given: dict[str, Any] = {}
    for key, value in options.items():
        name = str(key).replace("-", "_")
        if name not in FIELDS:
            close = difflib.get_close_matches(name, FIELDS, n=1, cutoff=0.5)
            hint = f" Did you mean {close[0]!r}?" if close else f" The options are {', '.join(FIELDS)}."
            raise OptionError(f"{source}: there is no option {str(key)!r}.{hint}")
        given[name] = _as_number(value) if "float" in str(FIELDS[name].type) else value
    return given


def _as_number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def resolved(config: TrainConfig, shards: Shards, *, batch_size: int, world_size: int) -> TrainConfig:
    """The config of a run on these shards: every number settled, for `batch_size` sequences on each device."""
    accumulation = _accumulation(config, batch_size, world_size)
    tokens_per_step = batch_size * accumulation * world_size * config.context_length
    max_steps = _num_steps(config, shards.num_tokens, tokens_per_step)
    return dataclasses.replace(
        config,
        vocab_size=_vocab_size(config, shards),
        batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        global_batch_size=batch_size * accumulation * world_size,
        max_steps=max_steps,
        max_tokens=None,
        epochs=None,
        warmup_steps=_steps(config.warmup_steps, max_steps, least=0),
        val_check_interval=_steps(config.val_check_interval, max_steps),
        checkpoint_interval=_steps(config.checkpoint_interval, max_steps),
        sample_interval=_steps(config.sample_interval, max_steps),
    )


def asked_global_batch(config: TrainConfig, world_size: int) -> int:
    """The sequences of a step that were asked for, whatever `batch_size` turns out to be."""
    if config.global_batch_size is not None:
        return config.global_batch_size
    per_device = TrainConfig.batch_size if config.batch_size == "auto" else config.batch_size
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


def _num_steps(config: TrainConfig, num_tokens: int, tokens_per_step: int) -> int:
    if config.max_steps is not None:
        return config.max_steps
    tokens = config.max_tokens if config.max_tokens is not None else (config.epochs or 1.0) * num_tokens
    return max(1, math.floor(tokens / tokens_per_step))


def _vocab_size(config: TrainConfig, shards: Shards) -> int:
    needed = shards.manifest.vocab_size
    if config.vocab_size is not None and config.vocab_size < needed:
        raise VocabSizeError(
            f"vocab_size={config.vocab_size} is too small: the tokenizer of the shards has {needed:,} tokens. "
            f"Pass vocab_size >= {needed}, or leave it out."
        )
    return config.vocab_size or needed


def _steps(interval: int | float, max_steps: int, *, least: int = 1) -> int:
    """A number of steps: an int is one, a float is a fraction of the run."""
    if isinstance(interval, int):
        return interval
    return max(least, round(interval * max_steps)) if interval else 0


def differences(there: Mapping[str, Any], now: Mapping[str, Any], names: Iterable[str] | None = None) -> list[str]:
    """What is not the same in two resolved configs, in words.

    >>> differences({"seed": 0, "keep": 2}, {"seed": 1, "keep": 3})
    ['seed was 0 and is now 1']
    """
    compared = [name for name in FIELDS if name not in FREE | ROUNDING] if names is None else sorted(names)
    return [
        f"{name} was {there.get(name)!r} and is now {now.get(name)!r}"
        for name in compared
        if there.get(name) != now.get(name)
    ]


def load_config(run: Path) -> TrainConfig:
    """The config of a run folder."""
    path = run / CONFIG_FILE
    try:
        return TrainConfig.of(json.loads(path.read_bytes()), source=str(path))
    except FileNotFoundError:
        raise CheckpointError(f"{run}: it is not the folder of a run: it has no {CONFIG_FILE}.") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: it is damaged: {error}") from None
