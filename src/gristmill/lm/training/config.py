"""TrainConfig: the options of a run, and with them the options of its model; from presets, YAML files and options.

Options are flat wherever people write them: keywords of `gm.lm.train`, flags, YAML files and config.json. `TrainConfig`
keeps them apart: its fields are those of any run, and `model` holds the options of the model.

An option that counts steps (`val_check_interval`, `checkpoint_interval`, `sample_interval`, `warmup_steps`) may also be
a fraction of the run: 500 is every 500 steps, 0.1 is every tenth of the run. `resolved` turns all of them into
numbers; what it returns is written to config.json of the run and compared when the run is resumed.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_type_hints

from gristmill.arguments import check_whole_number, nearest
from gristmill.errors import CheckpointError, OptionError, warn_user
from gristmill.lm.explain import CONFIG_FILE, why_no_run
from gristmill.lm.models.config import ModelConfig, steps_of
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.models.registry import MODELS, find_model
from gristmill.lm.option_types import (
    Count,
    Fraction,
    NotNegative,
    Positive,
    Share,
    Steps,
    check_options,
    fitted,
    option_fields,
)
from gristmill.lm.training.presets import LENGTHS, preset_options, run_defaults, without_length
from gristmill.lm.training.registries import OPTIMIZERS, SCHEDULES
from gristmill.packages import load_package
from gristmill.small_files import parse_json, read_small_file

if TYPE_CHECKING:
    from gristmill.lm.data.training_data import TrainingData

__all__ = ["DeviceName", "PrecisionName", "TrainConfig", "differences", "options_of_model", "read_config", "resolved"]

DeviceName: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]
PrecisionName: TypeAlias = Literal["auto", "bf16-mixed", "16-mixed", "32"]

MAX_CONFIG_BYTES = 1 << 20  # a config has a few kilobytes

# What may change between a run and the run that resumes it: the weights do not depend on it.
FREE = frozenset(
    {
        *("val_check_interval", "limit_val_batches", "checkpoint_interval", "keep", "log", "log_interval"),
        *("sample_interval", "sample_tokens", "init_from"),
    }
)
# Where and how a step is computed. With another value it is the same step up to rounding, not bit-exact.
ROUNDING = frozenset(
    {
        *("batch_size", "gradient_accumulation_steps", "precision", "compile_model", "compile_mode"),
        *("activation_checkpointing", "device", "devices", "num_nodes", "strategy", "deterministic"),
    }
)
# Those of them that decide how a step is divided.
DIVISION = frozenset({"batch_size", "gradient_accumulation_steps", "devices", "num_nodes"})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained. Fields that are None or "auto" are settled by `resolved`."""

    model: ModelConfig = field(default_factory=GPTConfig)
    """Model to train: gpt (continues text), vae (a sequence VAE) or one of a plugin."""

    batch_size: Count | Literal["auto"] = 32
    """Sequences per device and micro-batch. auto: as many as fit, keeping the global batch."""
    gradient_accumulation_steps: Count = 1
    """Micro-batches per step: saves memory, not time."""
    global_batch_size: Count | None = None
    """Sequences per step on all devices. None: batch_size x accumulation x devices."""
    max_steps: Count | None = None
    """Length of the run in steps. One of max_steps, max_tokens and epochs."""
    max_tokens: Count | None = None
    """Length of the run in tokens."""
    epochs: Positive | None = None
    """Length of the run in passes over the data. 1 if no other length is given."""
    seed: int = 0
    """Random seed of weights, order of the data and dropout."""
    init_from: str | None = None
    """Start from the weights of another run (its best checkpoint), or of a Hugging Face folder with safetensors."""
    optimizer: str = "adamw"
    """adamw, muon (for the matrices inside the model, adamw for the rest), or one of a plugin."""
    learning_rate: Positive = 1e-3
    """Peak learning rate of AdamW."""
    warmup_steps: Steps = 0.02
    """Steps of learning-rate warm-up, or their share of the run."""
    schedule: str = "cosine"
    """Learning-rate schedule: cosine, wsd (warm-up, stable, decay), constant, or one of a plugin."""
    final_fraction: Fraction = 0.1
    """Final learning rate, as a share of the peak."""
    decay_fraction: Fraction = 0.2
    """Share of the run in which wsd decays."""
    weight_decay: NotNegative = 0.1
    """Weight decay of matrices."""
    beta1: Share = 0.9
    """AdamW's beta1."""
    beta2: Share = 0.95
    """AdamW's beta2."""
    eps: Positive = 1e-8
    """AdamW's epsilon."""
    muon_learning_rate: Positive = 0.02
    """Peak learning rate of Muon."""
    muon_momentum: Share = 0.95
    """Muon's momentum."""
    clip_norm: NotNegative = 1.0
    """Gradient norm to clip to. 0: no clipping."""
    precision: PrecisionName = "auto"
    """auto: bf16-mixed where the device has it, otherwise 32."""
    compile_model: bool = False
    """Compile the model with torch.compile: a minute at the start, then faster."""
    compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "default"
    """Mode of torch.compile."""
    activation_checkpointing: bool = False
    """Compute each layer again in the backward pass instead of storing its activations: less memory, more time."""
    device: DeviceName = "auto"
    """Device to run on. auto picks CUDA when available."""
    devices: Count = 1
    """Number of devices per node. Not needed under torchrun and srun, which decide it."""
    num_nodes: Count = 1
    """Number of machines. Not needed under torchrun and srun; else set MASTER_ADDR, MASTER_PORT, NODE_RANK on each."""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """How several devices share the work: ddp (all weights on each) or fsdp (a part of them on each)."""
    deterministic: bool = False
    """Bit-exact results on a GPU too, where that costs speed."""
    val_check_interval: Steps = 0.1
    """Steps between validations, or their share of the run."""
    limit_val_batches: Steps | None = 32
    """Batches per validation, or their share: a fixed subset. The last one takes all."""
    checkpoint_interval: Steps = 1000
    """Steps between checkpoints, or their share of the run."""
    keep: Count = 2
    """Latest checkpoints to keep, beside the best."""
    log_interval: Count = 10
    """Steps between records."""
    log: Literal["none", "tensorboard", "csv", "wandb", "trackio"] = "none"
    """Where to show metrics besides metrics.jsonl."""
    sample_interval: Steps = 0
    """Steps between sample texts, or their share of the run. 0: none."""
    sample_tokens: Count = 64
    """Length of a sample text in tokens."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, ModelConfig):
            raise OptionError(
                f"model={self.model!r}: pass the config of a model, such as gm.lm.GPTConfig(), or call "
                f"TrainConfig.from_options({{'model': {GPTConfig.name!r}}})."
            )
        check_options(self)
        OPTIMIZERS.check(self.optimizer, "optimizer")
        SCHEDULES.check(self.schedule, "schedule")
        if check_whole_number("seed", self.seed) < 0:
            raise OptionError(f"seed={self.seed} is negative. Pass seed >= 0.")
        self._check_length()

    def _check_length(self) -> None:
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) > 1:
            raise OptionError(
                f"{' and '.join(given)} are both given, and each says how long to train. Pass one of them."
            )
        if self.max_steps is not None:
            check_warmup(self.warmup_steps, self.max_steps)

    @classmethod
    def from_options(
        cls, options: Mapping[str, Any], *, preset: str | None = None, source: str = "the options"
    ) -> TrainConfig:
        """The preset with the options on top, those of the model among them; an unknown name suggests the nearest one.

        >>> config = TrainConfig.from_options({"max-steps": 10, "d_model": 64}, preset="quickstart")
        >>> config.max_steps, config.model.d_model
        (10, 64)
        """
        in_preset = preset_options(preset, options)
        given = normalized(options, source=source, model=in_preset.get("model"))
        model = given.get("model") or in_preset.get("model", GPTConfig.name)
        merged = {**run_defaults(model), **without_length(in_preset, given), **given, "model": model}
        kind = find_model(merged.pop("model", GPTConfig.name)).config
        of_model = {name: merged.pop(name) for name in option_fields(kind) if name in merged}
        return cls(model=kind(**of_model), **merged)

    @classmethod
    def of(cls, options: Mapping[str, Any], *, preset: str | None = None, source: str = "the options") -> TrainConfig:
        """Deprecated: the old name of `from_options`."""
        warn_user("TrainConfig.of is deprecated. Call TrainConfig.from_options.", DeprecationWarning)
        return cls.from_options(options, preset=preset, source=source)

    def to_json(self) -> dict[str, Any]:
        """Every option of the model and of the run, flat; what `from_options` reads."""
        of_model = {name: getattr(self.model, name) for name in option_fields(type(self.model))}
        of_run = {name: getattr(self, name) for name in RUN_FIELDS if name != "model"}
        return {"model": self.model.name, **of_model, **of_run}


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
RUN_FIELDS = option_fields(TrainConfig)


def options_of_model(name: str) -> dict[str, dataclasses.Field[Any]]:
    """The options of a run that trains this model, by name: its own and those of any run."""
    fields = option_fields(find_model(name).config)
    if both := sorted(fields.keys() & RUN_FIELDS.keys()):
        raise OptionError(
            f"model={name!r}: its option {both[0]!r} is also an option of every run. Give it another name in "
            f"{find_model(name).config.__name__}."
        )
    known = {"model": RUN_FIELDS["model"], **fields, **RUN_FIELDS}
    _check_own_values(find_model(name).config, known)
    return known


def _check_own_values(kind: type[ModelConfig], known: Collection[str]) -> None:
    """Raise for a preset, or a default of the run, of a model that names an option that is not there."""
    for place, options in {"RUN_DEFAULTS": kind.RUN_DEFAULTS, **kind.PRESETS}.items():
        if unknown := sorted(options.keys() - set(known)):
            raise OptionError(
                f"model={kind.name!r}: {place} of {kind.__name__} sets {unknown[0]!r}, and there is no such option."
                f"{nearest(unknown[0], known)}"
            )


def read_config(path: str | os.PathLike[str], *, model: str | None = None) -> dict[str, Any]:
    """The options in a YAML (or JSON) file, with the names of `TrainConfig` and of its model.

    model: the model that the options are for, where the file does not name one.
    """
    yaml = load_package("yaml", needed_by="reading a YAML file")
    data = read_small_file(path, what="a config", max_bytes=MAX_CONFIG_BYTES, error=OptionError)
    try:
        content = yaml.safe_load(data.decode())
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a ValueError: a date that no calendar has
        raise OptionError(f"{path}: it is not YAML: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise OptionError(f"{path}: it holds a {type(content).__name__}. Write one option per line: 'max_steps: 1000'.")
    return normalized(content, source=str(path), model=model)


def normalized(
    options: Mapping[str, Any], *, source: str, model: str | None = None, lenient: bool = False
) -> dict[str, Any]:
    """The options under their names, "model" as a name; `model` is meant where they name none.

    Numbers that YAML took for text (1e-3) are numbers, and text that it took for a number (a column 2020) is text.
    Options of another model are refused where they differ from their defaults (`lenient`: left out): whoever passes
    one expects an effect.
    """
    named = {str(key).replace("-", "_"): value for key, value in options.items()}
    chosen = named.get("model", model or GPTConfig.name)
    if isinstance(chosen, ModelConfig):
        of_model = {name: getattr(chosen, name) for name in option_fields(type(chosen))}
        named, chosen = {**of_model, **named, "model": chosen.name}, chosen.name
    known = options_of_model(chosen)
    hints = {
        **get_type_hints(find_model(chosen).config, include_extras=True),
        **get_type_hints(TrainConfig, include_extras=True),
    }
    given: dict[str, Any] = {}
    for name, value in named.items():
        if name in known:
            given[name] = _fitted(name, value, hints[name])
        elif not (lenient and _owner(name)):
            _check_belongs(name, value, chosen, source)
    return given


def _fitted(name: str, value: Any, hint: Any) -> Any:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if name == "embedding_columns" and isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return fitted(hint, value)


def _owner(option: str) -> str | None:
    """The first model that has this option."""
    return next((name for name, entry in MODELS.items() if option in option_fields(entry.config)), None)


def _check_belongs(name: str, value: Any, model: str, source: str) -> None:
    """Raise for an option that the model has not, unless another model has it and it is set to its default there."""
    known, owner = options_of_model(model), _owner(name)
    if owner is None:
        hint = nearest(OTHER_NAMES.get(name, name), known) or f" The options are {', '.join(known)}."
        raise OptionError(f"{source}: there is no option {name!r}.{hint}")
    if value == option_fields(MODELS[owner].config)[name].default:
        return
    lengths = {"context_length": "max_sequence_length", "max_sequence_length": "context_length"}
    instead = f", pass {lengths[name]}" if lengths.get(name) in known else ""
    raise OptionError(
        f"{name}={value!r} is an option of model={owner!r}, and this is model={model!r}. "
        f"Leave it out{instead}, or pass model={owner!r}."
    )


def resolved(config: TrainConfig, data: TrainingData, *, batch_size: int, world_size: int) -> TrainConfig:
    """The config of a run on this data: every number settled, for `batch_size` sequences on each device."""
    accumulation = _accumulation(config, batch_size, world_size)
    max_steps = num_steps(config, data, global_batch_size=batch_size * accumulation * world_size)
    return dataclasses.replace(
        config,
        model=config.model.settled(data, max_steps=max_steps),
        batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        global_batch_size=batch_size * accumulation * world_size,
        max_steps=max_steps,
        max_tokens=None,
        epochs=None,
        warmup_steps=steps_of(config.warmup_steps, max_steps, least=0),
        val_check_interval=steps_of(config.val_check_interval, max_steps),
        checkpoint_interval=steps_of(config.checkpoint_interval, max_steps),
        sample_interval=steps_of(config.sample_interval, max_steps),
    )


def num_steps(config: TrainConfig, data: TrainingData, *, global_batch_size: int) -> int:
    """The length of the run in steps."""
    if config.max_steps is not None:
        return config.max_steps
    tokens = config.max_tokens if config.max_tokens is not None else (config.epochs or 1.0) * data.num_tokens
    return max(1, math.floor(tokens / (global_batch_size * data.tokens_per_sequence)))


def check_warmup(warmup_steps: int | float, max_steps: int) -> None:
    """Raise `OptionError` for a warm-up that is longer than the run."""
    if isinstance(warmup_steps, int) and warmup_steps > max_steps:
        raise OptionError(
            f"warmup_steps={warmup_steps} is longer than the run of {max_steps:,} steps. Pass warmup_steps <= "
            f"{max_steps}, or a share such as warmup_steps=0.02."
        )


def asked_global_batch(config: TrainConfig, world_size: int) -> int:
    """The sequences of a step that were asked for, whatever `batch_size` turns out to be."""
    if config.global_batch_size is not None:
        return config.global_batch_size
    default = config.model.RUN_DEFAULTS.get("batch_size", TrainConfig.batch_size)
    per_device = default if config.batch_size == "auto" else config.batch_size
    assert isinstance(per_device, int)
    return per_device * config.gradient_accumulation_steps * world_size


def _accumulation(config: TrainConfig, batch_size: int, world_size: int) -> int:
    total = asked_global_batch(config, world_size)
    if total % world_size:
        raise OptionError(
            f"global_batch_size={total} cannot be divided among {world_size} devices. Pass a global_batch_size that is "
            f"a multiple of {world_size}, or another number of devices."
        )
    if total % (batch_size * world_size):
        devices = f" on {world_size} devices" if world_size > 1 else ""
        raise OptionError(
            f"global_batch_size={total} is not a multiple of batch_size={batch_size}{devices}. "
            f"Pass a batch_size that divides it, a global_batch_size that is a multiple of {batch_size * world_size}, "
            f"or batch_size='auto'."
        )
    return total // (batch_size * world_size)


def differences(there: Mapping[str, Any], now: TrainConfig, *, only_rounding: bool = False) -> list[str]:
    """What is not the same in the saved options of a run and in a resolved config, in words.

    What the weights depend on, or (`only_rounding`) on which by rounding. An option that the saved run did not have yet
    counts as its default. A longer run is no difference.
    """
    kind, current = type(now.model), now.to_json()
    rounding = ROUNDING - DIVISION if kind.DIVISION_CHANGES_STEPS else ROUNDING
    free = FREE | kind.DATA_FREE | kind.FREE_OPTIONS
    if is_longer(there, now):
        free |= {"max_steps"}
    known = options_of_model(kind.name)
    compared = sorted(rounding) if only_rounding else [name for name in known if name not in free | rounding]
    earlier = {**kind.DATA_BEFORE, **kind.BEFORE}
    before = {name: there.get(name, earlier.get(name, known[name].default)) for name in compared}
    return [
        f"{name} was {before[name]!r} and is now {current[name]!r}"
        for name in compared
        if before[name] != current[name]
    ]


def is_longer(there: Mapping[str, Any], now: TrainConfig) -> bool:
    """Whether the run was to end earlier when it was saved."""
    before = there.get("max_steps")
    return isinstance(before, int) and now.max_steps is not None and now.max_steps > before


def with_saved(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run that is resumed: those it was saved with, and on top those that are passed now."""
    asked = {name: value for name, value in asked.items() if value is not None or name not in LENGTHS}
    if any(name in asked and asked[name] != saved.get(name) for name in LENGTHS):
        # A share of a longer run would be another number of steps than the run has had.
        warmups = {"warmup_steps", *find_model(saved["model"]).config.WARMUPS}
        asked = {name: value for name, value in asked.items() if name not in warmups or isinstance(value, int)}
    return {**without_length(dict(saved), asked), **asked}


def load_config(run: Path) -> TrainConfig:
    """The config of a run folder."""
    path = run / CONFIG_FILE
    try:
        data = read_small_file(path, what="a config", max_bytes=MAX_CONFIG_BYTES, error=CheckpointError)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(why_no_run(run)) from None
    content = parse_json(data, source=path, error=CheckpointError)
    _check_registered(content, path)
    try:
        return config_of_run(content, source=str(path))
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{path}: it is damaged: {error}") from None


def _check_registered(options: Any, path: Path) -> None:
    """Raise for a model, an optimizer or a schedule that a file of the user must register first: nothing is damaged."""
    registries: dict[str, Mapping[str, Any]] = {"model": MODELS, "optimizer": OPTIMIZERS, "schedule": SCHEDULES}
    for option, known in registries.items():
        name = options.get(option) if isinstance(options, dict) else None
        if isinstance(name, str) and name not in known:
            raise CheckpointError(
                f"{path}: {option}={name!r} is not known here. The known ones are {', '.join(map(repr, known))}. "
                f"Import the file that registers it first: plugin='my_model.py'."
            )


def config_of_run(options: Mapping[str, Any], *, source: str) -> TrainConfig:
    """The config that a run was saved with, without the options of other models that runs of version 0.1 saved."""
    given = normalized(options, source=source, lenient=True)
    kind = find_model(given.get("model", GPTConfig.name)).config
    return TrainConfig.from_options({**kind.DATA_BEFORE, **kind.BEFORE, **given}, source=source)
