"""TrainConfig: the options of a run and of its model, from presets, YAML files and keyword arguments.

Options are flat wherever users write them: keywords of `gm.lm.train`, flags, YAML files and config.json. `TrainConfig`
separates them: its own fields apply to every run, and `model` holds the options of the model.

An option that counts steps (`val_check_interval`, `checkpoint_interval`, `sample_interval`, `warmup_steps`) may also be
a fraction of the run: 500 means every 500 steps, 0.1 every tenth of the run. `resolved` converts all of them to step
counts. The resolved config is written to config.json of the run and compared when the run is resumed.
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
    MAX_MESSAGE,
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

__all__ = [
    "DeviceName",
    "Float8",
    "PrecisionName",
    "TrainConfig",
    "differences",
    "options_of_model",
    "read_config",
    "resolved",
]

PLUGIN_ADVICE = "Import the file that registers it first: plugin='my_model.py'."
Float8: TypeAlias = Literal["off", "head", "blocks", "all"]
DeviceName: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]
PrecisionName: TypeAlias = Literal["auto", "bf16-mixed", "16-mixed", "32"]

MAX_CONFIG_BYTES = 1 << 20  # real configs have a few kilobytes
MAX_CONFIG_VALUES = 100_000  # in a YAML file, with those that an alias stands for
MAX_DIGITS = 300  # of a whole number in a YAML file; JSON and Python have limits of their own

# Options that may change when a run is resumed: the weights do not depend on them.
FREE = frozenset(
    {
        *("val_check_interval", "limit_val_batches", "checkpoint_interval", "keep", "log", "log_interval"),
        *("sample_interval", "sample_tokens", "init_from"),
    }
)
# Options that decide where and how a step is computed. A different value changes a step only by rounding.
ROUNDING = frozenset(
    {
        *("batch_size", "gradient_accumulation_steps", "precision", "compile_model", "compile_mode"),
        *("activation_checkpointing", "device", "devices", "num_nodes", "strategy", "deterministic"),
        *("kernels", "float8", "cuda_graphs"),
    }
)
# The options in ROUNDING that decide how a step is divided into micro-batches and devices.
DIVISION = frozenset({"batch_size", "gradient_accumulation_steps", "devices", "num_nodes"})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Options of a training run. The options of the model are in `model`.

    Options that count steps accept a whole number (500: every 500 steps) or a fraction of the run (0.1: every tenth of
    the run). Fields that are None or "auto" are filled in when the run starts, from the data and the devices.

    Raises:
        OptionError: An option is out of range, more than one of `max_steps`, `max_tokens` and `epochs` is given, or
            `optimizer` or `schedule` is not registered.

    Examples:
        >>> import gristmill as gm
        >>> config = gm.lm.TrainConfig(model=gm.lm.GPTConfig(num_layers=2), max_steps=100)
        >>> config.model.num_layers, config.max_steps, config.learning_rate
        (2, 100, 0.001)
    """

    model: ModelConfig = field(default_factory=GPTConfig)
    """Model to train: gpt (continues text), vae (a sequence VAE), or a model registered by a plugin."""

    batch_size: Count | Literal["auto"] = 32
    """Sequences per device and micro-batch. auto: as many as fit in memory, with an unchanged global batch."""
    gradient_accumulation_steps: Count = 1
    """Micro-batches per step. More of them save memory, not time."""
    global_batch_size: Count | None = None
    """Sequences per step on all devices. None: batch_size x gradient_accumulation_steps x devices."""
    max_steps: Count | None = None
    """Length of the run in steps, instead of in tokens or epochs."""
    max_tokens: Count | None = None
    """Length of the run in tokens."""
    epochs: Positive | None = None
    """Length of the run in passes over the data. 1 if no length is given."""
    seed: int = 0
    """Random seed for the initial weights, the order of the data and dropout."""
    init_from: str | None = None
    """Start from the weights of another run (its best checkpoint) or of a Hugging Face folder with safetensors."""
    optimizer: str = "adamw"
    """Optimizer: adamw, muon (for the matrices inside the model, adamw for the rest), or one registered by a plugin."""
    learning_rate: Positive = 1e-3
    """Peak learning rate of AdamW."""
    warmup_steps: Steps = 0.02
    """Length of the learning-rate warm-up, in steps or as a fraction of the run."""
    schedule: str = "cosine"
    """Learning-rate schedule: cosine, wsd (warm-up, stable, decay), constant, or one registered by a plugin."""
    final_fraction: Fraction = 0.1
    """Final learning rate, as a fraction of the peak."""
    decay_fraction: Fraction = 0.2
    """Length of the decay phase of wsd, as a fraction of the run."""
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
    """Maximum gradient norm; larger gradients are scaled down. 0: no clipping."""
    precision: PrecisionName = "auto"
    """Floating-point precision. auto: bf16-mixed where the device supports it, otherwise 32."""
    kernels: Literal["auto", "plain"] = "auto"
    """auto: compute the step with Triton kernels where the model and the device support them. plain: with torch."""
    float8: Float8 = "off"
    """Matrix products in 8-bit floats, on GPUs from compute capability 8.9 on: those of the head, also those of the
    blocks, or also their weight gradients (all). Faster; the loss may differ slightly."""
    compile_model: bool = False
    """Compile the model with torch.compile. Takes about a minute at the start; each step is faster. Models that use
    Triton kernels need no compilation and ignore it."""
    compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "default"
    """Mode of torch.compile."""
    cuda_graphs: Literal["auto", "off"] = "auto"
    """auto: replay the step from CUDA graphs where the model, the data and the device support them. off: launch every
    kernel of every step. Results are equal up to rounding."""
    activation_checkpointing: bool = False
    """Recompute each layer in the backward pass instead of storing its activations: less memory, more time."""
    device: DeviceName = "auto"
    """Device to run on. auto picks CUDA when available."""
    devices: Count = 1
    """Number of devices per node. torchrun and srun set it."""
    num_nodes: Count = 1
    """Number of machines. torchrun and srun set it; otherwise set MASTER_ADDR, MASTER_PORT and NODE_RANK on each."""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """How to use several devices: ddp (each holds all weights) or fsdp (each holds a part of the weights)."""
    deterministic: bool = False
    """Use deterministic GPU kernels where torch has them, for bit-exact results. Slower."""
    val_check_interval: Steps = 0.1
    """Steps between validations, or a fraction of the run."""
    limit_val_batches: Steps | None = 32
    """Batches per validation, or a fraction of all: a fixed subset. The last validation uses all of them."""
    checkpoint_interval: Steps = 1000
    """Steps between checkpoints, or a fraction of the run."""
    keep: Count = 2
    """Number of recent checkpoints to keep, in addition to the best."""
    log_interval: Count = 10
    """Steps between records in metrics.jsonl."""
    log: Literal["none", "tensorboard", "csv", "wandb", "trackio"] = "none"
    """Additional logger for the metrics, which are always written to metrics.jsonl."""
    sample_interval: Steps = 0
    """Steps between sample texts, or a fraction of the run. 0: no sample texts."""
    sample_tokens: Count = 64
    """Length of a sample text in tokens."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, ModelConfig):
            raise OptionError(
                f"model={self.model!r} is not a model config. Pass one, such as gm.lm.GPTConfig(), or call "
                f"TrainConfig.from_options({{'model': {GPTConfig.name!r}}})."
            )
        check_options(self)
        OPTIMIZERS.check(self.optimizer, "optimizer")
        SCHEDULES.check(self.schedule, "schedule")
        if check_whole_number("seed", self.seed) < 0:
            raise OptionError(f"seed must be >= 0, got {self.seed}.")
        self._check_length()

    def _check_length(self) -> None:
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) > 1:
            raise OptionError(
                f"{' and '.join(given)} are both given, but each sets the length of the run. Pass one of them."
            )
        if self.max_steps is not None:
            check_warmup(self.warmup_steps, self.max_steps)

    @classmethod
    def from_options(
        cls, options: Mapping[str, Any], *, preset: str | None = None, source: str = "the options"
    ) -> TrainConfig:
        """Return the config for flat options of the run and of its model. Options replace those of the preset.

        Args:
            options: Options by name, with "-" or "_" between words. "model" is the name of a model or its config.
            preset: Name of a preset, such as "quickstart".
            source: Where the options come from, for error messages.

        Raises:
            OptionError: An option is unknown, belongs to another model or is out of range, or the preset is unknown.

        Examples:
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
        """Return the config for flat options. Deprecated: call `from_options`.

        Args:
            options: See `from_options`.
            preset: See `from_options`.
            source: See `from_options`.

        Raises:
            OptionError: See `from_options`.

        Examples:
            >>> TrainConfig.from_options({"max_steps": 10}).max_steps  # instead of TrainConfig.of
            10
        """
        warn_user("TrainConfig.of is deprecated. Call TrainConfig.from_options.", DeprecationWarning)
        return cls.from_options(options, preset=preset, source=source)

    def to_json(self) -> dict[str, Any]:
        """Return all options of the model and of the run as one flat dict, which `from_options` accepts.

        Examples:
            >>> options = TrainConfig(max_steps=10).to_json()
            >>> options["model"], options["max_steps"], options["num_layers"]
            ('gpt', 10, 4)
        """
        of_model = {name: getattr(self.model, name) for name in option_fields(type(self.model))}
        of_run = {name: getattr(self, name) for name in RUN_FIELDS if name != "model"}
        return {"model": self.model.name, **of_model, **of_run}


# Names of these options in other trainers, too different from ours for a spelling check.
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
    """Return the options of a run that trains this model, by name: those of the model and those of every run."""
    fields = option_fields(find_model(name).config)
    if both := sorted(fields.keys() & RUN_FIELDS.keys()):
        raise OptionError(
            f"model={name!r}: its option {both[0]!r} is also an option of every run. Rename it in "
            f"{find_model(name).config.__name__}."
        )
    known = {"model": RUN_FIELDS["model"], **fields, **RUN_FIELDS}
    _check_own_values(find_model(name).config, known)
    return known


def _check_own_values(kind: type[ModelConfig], known: Collection[str]) -> None:
    """Raise if a preset of a model, or its RUN_DEFAULTS, sets an unknown option."""
    for place, options in {"RUN_DEFAULTS": kind.RUN_DEFAULTS, **kind.PRESETS}.items():
        if unknown := sorted(options.keys() - set(known)):
            raise OptionError(
                f"model={kind.name!r}: {place} of {kind.__name__} sets an unknown option {unknown[0]!r}."
                f"{nearest(unknown[0], known)}"
            )


def read_config(path: str | os.PathLike[str], *, model: str | None = None) -> dict[str, Any]:
    """Return the options in a YAML (or JSON) file, under the names of `TrainConfig` and of its model.

    model: the model that the options are for, if the file does not name one.
    """
    yaml = load_package("yaml", needed_by="reading a YAML file")
    data = read_small_file(path, what="a config", max_bytes=MAX_CONFIG_BYTES, error=OptionError)
    try:
        content = _parse_yaml(yaml, data.decode())
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an impossible date
        raise OptionError(f"{path}: not valid YAML: {' '.join(str(error).split()):.{MAX_MESSAGE}}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise OptionError(f"{path}: contains a {type(content).__name__}. Write one option per line: 'max_steps: 1000'.")
    return normalized(content, source=str(path), model=model)


def _parse_yaml(yaml: Any, text: str) -> Any:
    """Return the value of a YAML document, after a check of its size.

    A document of a few lines can have billions of values: an alias stands for a list of aliases, and so on.
    """
    loader = yaml.SafeLoader(text)
    try:
        document = loader.get_single_node()
        if document is None:
            return None
        if _num_values(document, {}) > MAX_CONFIG_VALUES:
            raise ValueError(f"it has more than {MAX_CONFIG_VALUES:,} values. Write them without aliases.")
        return loader.construct_document(document)
    finally:
        loader.dispose()


def _num_values(node: Any, known: dict[int, float]) -> float:
    """Return the number of values in a YAML node, counted once per alias. An alias of itself has infinitely many."""
    if isinstance(node.value, str):
        if node.tag == "tag:yaml.org,2002:int" and len(node.value) > MAX_DIGITS:
            raise ValueError(f"a number has {len(node.value):,} digits; at most {MAX_DIGITS} are allowed.")
        return 1
    if id(node) not in known:
        known[id(node)] = math.inf
        # The items of a mapping are pairs of nodes, those of a list are nodes.
        inside = (each for item in node.value for each in (item if isinstance(item, tuple) else (item,)))
        known[id(node)] = 1 + sum(_num_values(each, known) for each in inside)
    return known[id(node)]


def normalized(
    options: Mapping[str, Any], *, source: str, model: str | None = None, lenient: bool = False
) -> dict[str, Any]:
    """Return the options under their canonical names, with "model" as a name; `model` is its default.

    Converts numbers that YAML reads as text (1e-3), and text that YAML reads as a number (a column named 2020).
    An option of another model is an error unless it has its default value, because the caller expects it to have an
    effect. With `lenient` it is dropped.
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
    """Return the first model that has this option."""
    return next((name for name, entry in MODELS.items() if option in option_fields(entry.config)), None)


def _check_belongs(name: str, value: Any, model: str, source: str) -> None:
    """Raise if the model does not have this option, unless it has the default value of another model's option."""
    known, owner = options_of_model(model), _owner(name)
    if owner is None:
        hint = nearest(OTHER_NAMES.get(name, name), known) or f" The options are {', '.join(known)}."
        raise OptionError(f"{source}: unknown option {name!r:.80}.{hint}")
    if value == option_fields(MODELS[owner].config)[name].default:
        return
    lengths = {"context_length": "max_sequence_length", "max_sequence_length": "context_length"}
    instead = f", pass {lengths[name]}" if lengths.get(name) in known else ""
    raise OptionError(
        f"{name}={value!r} is an option of model={owner!r}, but this run trains model={model!r}. "
        f"Leave it out{instead}, or pass model={owner!r}."
    )


def resolved(config: TrainConfig, data: TrainingData, *, batch_size: int, world_size: int) -> TrainConfig:
    """Return the config of a run on this data with every number filled in, for `batch_size` sequences per device."""
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
    """Return the length of the run in steps."""
    if config.max_steps is not None:
        return config.max_steps
    tokens = config.max_tokens if config.max_tokens is not None else (config.epochs or 1.0) * data.num_tokens
    return max(1, math.floor(tokens / (global_batch_size * data.tokens_per_sequence)))


def check_warmup(warmup_steps: int | float, max_steps: int) -> None:
    """Raise `OptionError` if the warm-up is longer than the run."""
    if isinstance(warmup_steps, int) and warmup_steps > max_steps:
        raise OptionError(
            f"warmup_steps={warmup_steps} is longer than the run of {max_steps:,} steps. Pass warmup_steps <= "
            f"{max_steps}, or a fraction of the run, such as warmup_steps=0.02."
        )


def requested_global_batch(config: TrainConfig, world_size: int) -> int:
    """Return the requested number of sequences per step, which does not depend on the value found for `batch_size`."""
    if config.global_batch_size is not None:
        return config.global_batch_size
    default = config.model.RUN_DEFAULTS.get("batch_size", TrainConfig.batch_size)
    per_device = default if config.batch_size == "auto" else config.batch_size
    assert isinstance(per_device, int)
    return per_device * config.gradient_accumulation_steps * world_size


def _accumulation(config: TrainConfig, batch_size: int, world_size: int) -> int:
    total = requested_global_batch(config, world_size)
    if total % world_size:
        raise OptionError(
            f"global_batch_size={total} cannot be divided evenly among {world_size} devices. Pass a global_batch_size "
            f"that is a multiple of {world_size}, or another number of devices."
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
    """Return the differences between the saved options of a run and a resolved config, as text.

    Compares the options that change the weights, or (`only_rounding`) those that change them only by rounding. An
    option that is missing from the saved options counts as its default. A longer run is not a difference.
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
    """Return whether the run is longer now than when it was saved."""
    before = there.get("max_steps")
    return isinstance(before, int) and now.max_steps is not None and now.max_steps > before


def with_saved(saved: Mapping[str, Any], requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a resumed run: the saved ones, replaced by those passed now."""
    requested = {name: value for name, value in requested.items() if value is not None or name not in LENGTHS}
    if any(name in requested and requested[name] != saved.get(name) for name in LENGTHS):
        # A fraction of a longer run would be a different number of warm-up steps than the run has used so far.
        warmups = {"warmup_steps", *find_model(saved["model"]).config.WARMUPS}
        requested = {name: value for name, value in requested.items() if name not in warmups or isinstance(value, int)}
    return {**without_length(dict(saved), requested), **requested}


def load_config(run: Path) -> TrainConfig:
    """Return the config of a run folder."""
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
        raise CheckpointError(
            f"{path}: damaged: {str(error).rstrip('.'):.{MAX_MESSAGE}}. Restore the original file."
        ) from None


def _check_registered(options: Any, path: Path) -> None:
    """Raise if a plugin must first register the model, optimizer or schedule of a run. The run is not damaged."""
    registries: dict[str, Mapping[str, Any]] = {"model": MODELS, "optimizer": OPTIMIZERS, "schedule": SCHEDULES}
    for option, known in registries.items():
        name = options.get(option) if isinstance(options, dict) else None
        if isinstance(name, str) and name not in known:
            raise CheckpointError(
                f"{path}: {option}={name!r} is not registered. Registered: {', '.join(map(repr, known))}. "
                f"{PLUGIN_ADVICE}"
            )


def config_of_run(options: Mapping[str, Any], *, source: str) -> TrainConfig:
    """Return the config of a saved run, without the options of other models that version 0.1 also saved."""
    given = normalized(options, source=source, lenient=True)
    kind = find_model(given.get("model", GPTConfig.name)).config
    return TrainConfig.from_options({**kind.DATA_BEFORE, **kind.BEFORE, **given}, source=source)
