"""plan: parameters, steps, tokens, memory and time of a run, without running it.

`plan` raises the errors that `train` would raise, and writes nothing. Time is measured: a few real steps and a few
validation batches run in memory, on one device and with the real batches, and are extrapolated to the length of the
run. On a GPU, memory is the measured peak. Elsewhere it is the sum of weights, gradients, optimizer state and the
activations that a forward pass keeps for the backward pass, measured for one sequence and multiplied by `batch_size`.
If the activations do not fit in free memory, no step is run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor

from gristmill.arguments import show_options
from gristmill.lm.data.mixed_data import MixedData
from gristmill.lm.data.mixture import TrainSources
from gristmill.lm.data.training_data import Dataset, TrainingData
from gristmill.lm.training.checkpoint import list_checkpoints, read_state
from gristmill.lm.training.config import TrainConfig, requested_global_batch, resolved
from gristmill.lm.training.devices import check_devices, launched
from gristmill.lm.training.kernels import use_kernels
from gristmill.lm.training.losses import LossModule, mean_loss
from gristmill.lm.training.meters import device_name, free_bytes, synchronize
from gristmill.lm.training.options import TrainOptions, train_defaults
from gristmill.lm.training.preflight import check_plan
from gristmill.lm.training.restoring import check_same_run, take_weights
from gristmill.lm.training.run_folder import check_folder
from gristmill.lm.training.set_up import (
    check_mask,
    mark_length,
    new_model,
    new_module,
    new_optimizers,
    open_datasets,
    resolve_config,
)
from gristmill.lm.training.trainer import Resume, memory_advice, requested_config
from gristmill.lm.training.validation import Validation
from gristmill.lm.training.weight_updates import WeightUpdates
from gristmill.notebook import html_table
from gristmill.packages import require_packages
from gristmill.report import figures

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from gristmill.lm.models.model import Model

__all__ = ["TrainPlan", "plan"]

TIMED_STEPS = 2
# If the first step takes this long, it is used as the measurement and no other step is timed.
LONG_STEP_SECONDS = 20.0
TIMED_VAL_BATCHES = 2


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainPlan:
    """Result of `plan`: the size, length, memory and time of a run. Seconds and bytes are estimates.

    Attributes:
        config: The config of the run with every number filled in.
        device: Name of the device.
        num_parameters: Number of parameters of the model.
        num_steps: Steps of the whole run.
        first_step: Step at which a resumed run continues, otherwise 0.
        num_tokens: Tokens of the whole run.
        epochs: Passes over the data in the whole run.
        source_epochs: Passes over each source of a mixture, empty for a single source.
        weight_bytes: Memory of the weights per device.
        gradient_bytes: Memory of the gradients per device.
        optimizer_bytes: Memory of the optimizer state per device.
        activation_bytes: Memory that one micro-batch keeps for its backward pass. None on a GPU, where the total peak
            is measured instead.
        memory_bytes: Total memory per device.
        step_seconds: Time per step. None if a step does not fit in memory.
        validation_seconds: Total time of all remaining validations.
        seconds: Time of the remaining run including validations. None if a step does not fit in memory.
        messages: Messages that `train` would show at the start.

    Examples:
        ```python
        plan = gm.lm.plan("shards/", preset="tinystories-17m")
        print(plan.num_parameters, plan.memory_bytes, plan.seconds)
        ```
    """

    config: TrainConfig
    device: str
    num_parameters: int
    num_steps: int
    first_step: int
    num_tokens: int
    epochs: float
    source_epochs: dict[str, float]
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int | None
    memory_bytes: int
    step_seconds: float | None
    validation_seconds: float
    seconds: float | None
    messages: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"TrainPlan(num_steps={self.num_steps:,}, num_parameters={self.num_parameters:,}, time={self._time()!r})"

    def _repr_html_(self) -> str:
        return html_table("TrainPlan", self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """Return the plan as (name, value) rows of text, as the command line shows it.

        Examples:
            ```python
            for name, value in gm.lm.plan("shards/", preset="quickstart").rows():
                print(f"{name:20} {value}")
            ```
        """
        left = self.num_steps - self.first_step
        resumed = f", of which {left:,} are left" if self.first_step else ""
        return [
            ("model", self.config.model.name),
            ("parameters", f"{self.num_parameters:,}"),
            ("steps", f"{self.num_steps:,}{resumed}"),
            ("sequences per step", self._batch()),
            ("tokens", f"{self.num_tokens:,}"),
            ("epochs", f"{self.epochs:.3g}"),
            ("device", self._devices()),
            ("memory", self._memory()),
            ("time per step", "-" if self.step_seconds is None else f"{figures.duration(self.step_seconds)}, measured"),
            ("time", self._time()),
            *(("note", message) for message in self.messages),
            ("dry run", "nothing was written"),
        ]

    def _batch(self) -> str:
        config = self.config
        num_devices = config.devices * config.num_nodes
        factors = {"micro-batches": config.gradient_accumulation_steps, "devices": num_devices}
        named = "".join(f" x {number} {what}" for what, number in factors.items() if number > 1)
        return f"{config.global_batch_size:,}" + (f" ({config.batch_size}{named})" if named else "")

    def _devices(self) -> str:
        number = self.config.devices * self.config.num_nodes
        return f"{f'{number} x ' * (number > 1)}{self.device}, precision {self.config.precision}"

    def _memory(self) -> str:
        parts = {
            "weights": self.weight_bytes,
            "gradients": self.gradient_bytes,
            "optimizer": self.optimizer_bytes,
            "activations": self.activation_bytes,
        }
        listed = ", ".join(f"{name} {figures.size(number)}" for name, number in parts.items() if number is not None)
        how = "measured" if self.activation_bytes is None else "estimated"
        each = " per device" if self.config.devices * self.config.num_nodes > 1 else ""
        return f"{figures.size(self.memory_bytes)}{each}, {how}: {listed}"

    def _time(self) -> str:
        if self.seconds is None:
            return "not measured"
        validating = f", of which {figures.duration(self.validation_seconds)} for validation"
        several = "; exchanging gradients is not included" * (self.config.devices * self.config.num_nodes > 1)
        return f"about {figures.duration(self.seconds)}{validating * (self.validation_seconds > 0)}{several}"


@show_options(TrainOptions, train_defaults())
def plan(
    data: TrainSources,
    *,
    out: str | os.PathLike[str] | None = None,
    config: TrainConfig | str | os.PathLike[str] | None = None,
    preset: str | None = None,
    resume: Resume = "never",
    overwrite: bool = False,
    **options: Unpack[TrainOptions],
) -> TrainPlan:
    """Return the size, length, memory and time of the run that `train` would start with the same arguments.

    Nothing is written. Up to three steps and a few validation batches run in memory to measure time. With several
    devices, one device runs its part of a step; exchanging gradients is not measured.

    Args:
        data: The training data; see `train`.
        out: Folder of the run, to check that a run can start there or to plan the rest of the run in it. None skips
            this check.
        config: A `TrainConfig`, or the path of a YAML file with options.
        preset: Name of a set of options; see `train`.
        resume: True or "auto" plans the rest of the run in `out`.
        overwrite: Plan a run that would replace the one in `out`.
        **options: Options of the run, which are the fields of `TrainConfig`, and of its model, which are the fields of
            `GPTConfig` or `VAEConfig`. Replace options of `preset` and `config`.

    Raises:
        OptionError: An option is unknown or out of range, or does not fit the data or the devices.
        FileExistsError: `out` has a run, and neither `resume` nor `overwrite` is given.
        CheckpointError: The run in `out`, or in `init_from`, is damaged, or was made with different options.
        ShardsFormatError: `data` is not a complete folder of shards.
        TrainingError: Memory runs out.
        MissingPackageError: An optional package is not installed.

    Examples:
        ```python
        gm.lm.plan("shards/", preset="tinystories-17m").rows()
        ```
    """
    require_packages("gm.lm.plan", "safetensors")
    folder = None if out is None else Path(out)
    resume = resume if folder else "never"
    requested, resumes = requested_config(folder or Path(), config, preset, dict(options), resume)
    check_devices(requested)
    if folder is not None:
        check_folder(folder, resume=resumes, overwrite=overwrite, init_from=requested.init_from)
    opened = requested.model.open_data(data, progress=None)
    check_plan(requested, opened)
    there = list_checkpoints(folder) if folder is not None and resumes == "auto" else []
    latest = there[-1] if there else None
    alone = dataclasses.replace(requested, devices=1, num_nodes=1, strategy="auto")
    with launched(alone) as (fabric, settled_alone), memory_advice(requested):
        requested = dataclasses.replace(requested, precision=settled_alone.precision)
        return _measure(fabric, requested, opened, latest)


def _measure(fabric: Fabric, requested: TrainConfig, data: TrainingData, latest: Path | None) -> TrainPlan:
    messages: list[str] = []
    state = None if latest is None else read_state(latest)
    config = _resolve_config(fabric, requested, data, state, messages)
    if latest is not None and state is not None:
        check_same_run(latest, state, config, data)
    check_mask(config, fabric.device)
    dataset, val_dataset = open_datasets(fabric, config, data, messages.append)
    with contextlib.closing(dataset), contextlib.closing(val_dataset) if val_dataset else contextlib.nullcontext():
        model = new_model(config)
        if config.init_from is not None and latest is None:
            take_weights(model, Path(config.init_from), messages.append, tokenizer=data.tokenizer)
        trial = _Trial(fabric, config, model, dataset)
        first_step = 0 if state is None else int(state["step"])
        trial.take_steps(first_step, messages)
        validation = Validation(fabric, config, data, val_dataset, trial.module)
        validating = _validation_seconds(fabric, config, validation, trial, first_step)
    return _plan(config, data, trial, first_step, validating, messages)


def _resolve_config(
    fabric: Fabric, requested: TrainConfig, data: TrainingData, state: dict[str, Any] | None, messages: list[str]
) -> TrainConfig:
    """Return the config for all devices with every number filled in, measured on one device."""
    num_devices = requested.devices * requested.num_nodes
    share = requested_global_batch(requested, num_devices) // num_devices
    alone = dataclasses.replace(requested, devices=1, num_nodes=1, global_batch_size=max(1, share))
    size = requested.batch_size
    if size == "auto":
        size = resolve_config(fabric, alone, data, state, messages.append).batch_size
    assert isinstance(size, int)
    return resolved(requested, data, batch_size=size, world_size=num_devices)


class _Trial:
    """A model in memory that runs a few steps, with their time and memory."""

    def __init__(self, fabric: Fabric, config: TrainConfig, model: Model, dataset: Dataset) -> None:
        self.fabric, self.config, self.model, self._dataset = fabric, config, model, dataset
        if fabric.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(fabric.device)
        self._kernels = use_kernels(config, model, fabric.device)
        self.module = new_module(fabric, config, model, self._kernels)
        self.optimizers = new_optimizers(config, model, self._kernels)
        self._updates = WeightUpdates(fabric, self.optimizers, model, clip_norm=config.clip_norm)
        self.activation_bytes: int | None = None
        self.first_seconds = 0.0  # time of the first step, which compiles and fills caches
        self.step_seconds: float | None = None

    def take_steps(self, first_step: int, messages: list[str]) -> None:
        """Run the first step, then the timed steps; run none if a step does not fit in memory."""
        if self.fabric.device.type != "cuda":
            self.activation_bytes = self._measure_activations(first_step)
            if (free := free_bytes()) is not None and self.activation_bytes > free:
                messages.append(
                    f"a step needs about {figures.size(self.activation_bytes)} for activations, but only "
                    f"{figures.size(free)} of memory is free. Pass a smaller batch_size with a larger "
                    f"gradient_accumulation_steps, or batch_size='auto'."
                )
                return
        self.first_seconds = self.step_seconds = self._timed_step(first_step)
        if self.first_seconds < LONG_STEP_SECONDS or self.config.compile_model:
            self.step_seconds = min(self._timed_step(first_step + number + 1) for number in range(TIMED_STEPS))

    def _measure_activations(self, step: int) -> int:
        fields = {name: None if x is None else x[:1].clone() for name, x in vars(self._batch(step, 0)).items()}
        with _kept_for_backward(self.model) as kept, self.fabric.autocast():
            # The graph must stay alive until all tensors are counted: freed memory could be counted twice or missed.
            graph = LossModule(self.model)(fields, self._schedule(step))
        del graph
        return kept.num_bytes * int(self.config.batch_size)

    def _timed_step(self, step: int) -> float:
        begin = time.perf_counter()
        schedule, num_micro_steps = self._schedule(step), self.config.gradient_accumulation_steps
        for micro_step in range(num_micro_steps):
            loss, _ = self.module(dict(vars(self._batch(step, micro_step))), schedule)
            self.fabric.backward(loss / num_micro_steps)
        self._updates.update()
        if self._kernels is not None:
            self._kernels.after_update()
        synchronize(self.fabric.device)
        return time.perf_counter() - begin

    def _batch(self, step: int, micro_step: int) -> Any:
        batch = self._dataset.batch(
            step,
            world_size=self.config.devices * self.config.num_nodes,
            micro_step=micro_step,
            num_micro_steps=self.config.gradient_accumulation_steps,
        )
        return mark_length(batch) if self.config.compile_model and self.config.model.varying_lengths else batch

    def _schedule(self, step: int) -> dict[str, Tensor]:
        assert self.config.max_steps is not None  # the config is resolved
        numbers = self.config.model.schedule(step, total_steps=self.config.max_steps)
        return {name: torch.full((), value, device=self.fabric.device) for name, value in numbers.items()}


class _Kept:
    """Counts the memory that a forward pass keeps for the backward pass, each storage once."""

    def __init__(self, model: Model) -> None:
        self._others = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        self._sizes: dict[int, int] = {}

    @property
    def num_bytes(self) -> int:
        """Total size without the weights."""
        return sum(self._sizes.values())

    def add(self, tensor: Tensor) -> Tensor:
        """Count a tensor and return it unchanged."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._others:
            self._sizes[storage.data_ptr()] = storage.nbytes()
        return tensor


@contextlib.contextmanager
def _kept_for_backward(model: Model) -> Iterator[_Kept]:
    kept = _Kept(model)
    with torch.autograd.graph.saved_tensors_hooks(kept.add, lambda tensor: tensor):
        yield kept


def _validation_seconds(
    fabric: Fabric, config: TrainConfig, validation: Validation, trial: _Trial, first_step: int
) -> float:
    """Return the time of all remaining validations: the fixed subset each time, and all sequences once at the end."""
    dataset = validation.dataset
    if dataset is None or trial.step_seconds is None:
        return 0.0
    assert isinstance(config.batch_size, int) and config.max_steps is not None  # the config is resolved
    num_sequences = min(TIMED_VAL_BATCHES * config.batch_size, dataset.num_sequences)
    begin = time.perf_counter()
    batches = dataset.validation_batches(num_sequences=num_sequences)
    mean_loss(trial.module, batches, stats=config.model.STATISTICS, autocast=fabric.autocast)
    each = (time.perf_counter() - begin) / num_sequences
    interval = int(config.val_check_interval)
    num_left = config.max_steps // interval - first_step // interval if interval else 0
    is_last_extra = interval == 0 or config.max_steps % interval != 0
    subset = (num_left + is_last_extra) * validation.num_sequences
    return each * (subset + dataset.num_sequences) / (config.devices * config.num_nodes)


def _plan(
    config: TrainConfig, data: TrainingData, trial: _Trial, first_step: int, validating: float, messages: list[str]
) -> TrainPlan:
    assert config.max_steps is not None and config.global_batch_size is not None  # the config is resolved
    num_devices = config.devices * config.num_nodes
    parts = num_devices if config.strategy == "fsdp" else 1
    weights = sum(parameter.nbytes for parameter in trial.model.parameters())
    gradients = sum(parameter.nbytes for parameter in trial.model.parameters() if parameter.requires_grad)
    tensors, _ = trial.optimizers.state_tensors()
    held = [math.ceil(number / parts) for number in (weights, gradients, sum(map(_num_bytes, tensors.values())))]
    activations = trial.activation_bytes
    memory = sum(held) + activations if activations is not None else _peak_bytes(trial.fabric)
    left = config.max_steps - first_step
    num_sequences = config.max_steps * config.global_batch_size
    num_tokens = round(num_sequences * data.tokens_per_sequence)
    return TrainPlan(
        config=config,
        device=device_name(trial.fabric.device),
        num_parameters=trial.model.num_parameters,
        num_steps=config.max_steps,
        first_step=first_step,
        num_tokens=num_tokens,
        epochs=num_tokens / max(1, data.num_tokens),
        source_epochs=data.repetitions(num_sequences) if isinstance(data, MixedData) else {},
        weight_bytes=held[0],
        gradient_bytes=held[1],
        optimizer_bytes=held[2],
        activation_bytes=activations,
        memory_bytes=memory,
        step_seconds=trial.step_seconds,
        validation_seconds=validating if left else 0.0,
        seconds=_seconds(trial, left, validating),
        messages=tuple(messages),
    )


def _seconds(trial: _Trial, num_steps: int, validating: float) -> float | None:
    if trial.step_seconds is None or num_steps == 0:
        return None if trial.step_seconds is None else 0.0
    starting = max(0.0, trial.first_seconds - trial.step_seconds)
    return starting + num_steps * trial.step_seconds + validating


def _num_bytes(tensor: Tensor) -> int:
    return tensor.nbytes


def _peak_bytes(fabric: Fabric) -> int:
    return torch.cuda.max_memory_allocated(fabric.device)
