"""The training loop, for any device. It can be stopped at any step and resumes bit-exactly.

A step is a pure function of the weights, the optimizer's state and (config, step, rank): batches, learning rates and
the seed of dropout are computed from the step number. So a checkpoint is weights + optimizer state + step, and 20 steps
give the same weights as 10 steps, a crash, and 10 more.

Lightning Fabric handles devices, precision and the processes of several devices. Only this folder imports it.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack

import torch

from gristmill.arguments import check_option_names, show_options
from gristmill.errors import TrainingError
from gristmill.lm.data.mixture import TrainSources
from gristmill.lm.data.training_data import TrainingData, warn_of_guessed_vocabulary
from gristmill.lm.models.config import ModelConfig
from gristmill.lm.models.gpt.options import GPTConfig
from gristmill.lm.option_types import option_fields
from gristmill.lm.training.advice import is_out_of_memory, out_of_memory
from gristmill.lm.training.base_run import with_base
from gristmill.lm.training.config import (
    OTHER_NAMES,
    TrainConfig,
    normalized,
    options_of_model,
    read_config,
)
from gristmill.lm.training.devices import check_devices, launched
from gristmill.lm.training.display import open_display, say_starting
from gristmill.lm.training.fabric import Fabric
from gristmill.lm.training.launchers import find_world, is_first_process, options_of_world, unused_tasks
from gristmill.lm.training.options import TrainOptions, train_defaults
from gristmill.lm.training.preflight import check_plan
from gristmill.lm.training.presets import preset_options, without_length
from gristmill.lm.training.pretrained import check_pretrained
from gristmill.lm.training.processes import end_with_parent, naming_lost_processes, same_outcome
from gristmill.lm.training.records import Record
from gristmill.lm.training.replacing import Replacement, replacing
from gristmill.lm.training.result import TrainResult
from gristmill.lm.training.resuming import options_to_resume, saved_options
from gristmill.lm.training.run import Run
from gristmill.lm.training.run_folder import check_folder, check_shared, claimed
from gristmill.lm.training.writers import check_loggers
from gristmill.packages import require_packages
from gristmill.trace import span, spanned

__all__ = ["Resume", "TrainResult", "memory_advice", "requested_config", "train", "without_garbage_collection"]

Resume: TypeAlias = 'Literal["never", "auto"] | bool'
TrainProgress: TypeAlias = "Literal['auto', 'bar', 'jsonl'] | Callable[[Record], object] | None"


@show_options(TrainOptions, train_defaults())
def train(
    data: TrainSources,
    *,
    out: str | os.PathLike[str],
    config: TrainConfig | str | os.PathLike[str] | None = None,
    preset: str | None = None,
    resume: Resume = "never",
    overwrite: bool = False,
    progress: TrainProgress = "auto",
    loggers: Sequence[Any] | Any = (),
    **options: Unpack[TrainOptions],
) -> TrainResult:
    """Train a model on `data` and write its config, metrics and checkpoints to the folder `out`.

    With several devices, this function starts the program again for each additional device, as Lightning does. Under
    torchrun or srun, the launcher starts all processes and sets their number.

    Args:
        data: A folder of token shards. For a VAE also Parquet files, as a path, folder or glob. For a mixture of
            folders, {"a": 0.7, "b": 0.3} or ["a:0.7", "b:0.3"] with the fraction of the tokens of the run, or
            ["a", "b"] in proportion to their size. With conversations=True, JSON lines of conversations: a file, folder
            or glob, or a list of them, which are concatenated.
        out: The folder of the run.
        config: A `TrainConfig`, or the path of a YAML file with options. Replaces options of the preset.
        preset: Name of a set of options: "quickstart" (three minutes on a CPU), "tinystories-17m", "gpt2-124m" and
            others.
        resume: True or "auto" resumes the run in `out` from its latest checkpoint, with its saved options, or starts a
            new run if `out` has no checkpoint. Options passed now must equal the saved ones, except a greater
            max_steps, options that do not affect the weights, such as intervals and loggers, and options that affect
            them only by rounding, such as devices and precision.
        overwrite: Replace the run in `out`. The old run is kept until the new one has a checkpoint.
        progress: Progress display: "auto", "bar", "jsonl", None, or a callable that receives every record of
            metrics.jsonl.
        loggers: Lightning loggers, such as [lightning_fabric.loggers.CSVLogger("logs")]. They receive the numbers of
            every record and the options of the run. A logger that fails is dropped with a warning message.
        **options: Options of the run, which are the fields of `TrainConfig`, and of its model, which are the fields of
            `GPTConfig` or `VAEConfig`. Replace options of `preset` and `config`.

    Returns:
        The losses, speed and checkpoint of the run.

    Raises:
        OptionError: An option is unknown or out of range, or does not fit the data or the devices.
        FileExistsError: `out` has a run, and neither `resume` nor `overwrite` is given.
        BlockingIOError: Another process trains in `out`.
        CheckpointError: The run in `out`, or in `init_from`, is damaged, or was made with different options.
        ShardsFormatError: `data` is not a complete folder of shards.
        TrainingError: The model cannot be trained as requested, for example because memory runs out.
        NotFiniteError: The loss, a gradient or a weight is NaN or infinite.
        MissingPackageError: An optional package is not installed.

    Examples:
        ```python
        result = gm.lm.train("shards/", out="run/", preset="quickstart", max_steps=200)
        print(result.val_loss, result.checkpoint)
        ```
    """
    end_with_parent()
    given_loggers = check_loggers(loggers)
    require_packages("gm.lm.train", "safetensors")  # checked first: needed to save checkpoints
    requested, resumes = requested_config(Path(out), config, preset, dict(options), resume)
    check_devices(requested)
    shown = progress if is_first_process() else None
    with contextlib.ExitStack() as held:
        # Processes started by a launcher connect before any check can fail, so that none waits for one that has exited.
        # Processes that this one starts itself are started only after all checks have passed.
        meets_first = find_world() is not None or requested.num_nodes > 1
        met = held.enter_context(launched(requested)) if meets_first else None
        with same_outcome():
            opened = _opened(data, requested, Path(out), resume=resumes, overwrite=overwrite, progress=shown)
            replacement = held.enter_context(_owning(Path(out), requested, resume=resumes, overwrite=overwrite))
        fabric, final = met or held.enter_context(launched(requested))
        if final.num_nodes > 1:
            with same_outcome():
                check_shared(Path(out), fabric)
        messages = [f"precision auto: {final.precision} on {fabric.device.type}."] * (requested.precision == "auto")
        messages += filter(None, [unused_tasks() if fabric.world_size == 1 else None])
        with memory_advice(final):
            return _train(fabric, final, opened, replacement, Path(out), messages, shown, given_loggers)


@spanned("open data")
def _opened(
    data: TrainSources, requested: TrainConfig, out: Path, *, resume: str, overwrite: bool, progress: Any
) -> TrainingData:
    """Open the data, after checking that the run can start in its folder. Check that the options fit the data."""
    if is_first_process():
        check_folder(out, resume=resume, overwrite=overwrite, init_from=requested.init_from)
    say_starting(progress, "opening the data")
    opened = requested.model.open_data(data, progress=progress if progress in (None, "auto", "bar") else None)
    check_plan(requested, opened)
    if is_first_process():
        warn_of_guessed_vocabulary(opened, requested.model.vocab_size)
    return opened


@contextlib.contextmanager
def _owning(folder: Path, config: TrainConfig, *, resume: str, overwrite: bool) -> Iterator[Replacement]:
    """Hold the lock of the folder in the first process, and keep the run to be replaced until it can be deleted."""
    claim: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if is_first_process():
        size = config.devices * config.num_nodes
        world = str(find_world() or "") or f"{size} processes" * (size > 1)
        claim = claimed(folder, resume=resume, overwrite=overwrite, world=world)
    with claim, replacing(folder, overwrite=overwrite) as replacement:
        yield replacement


def requested_config(
    out: Path, config: Any, preset: str | None, options: dict[str, Any], resume: Resume
) -> tuple[TrainConfig, str]:
    """Return (the requested config, on top of the saved options of the run to resume; "auto" or "never")."""
    resumes = "auto" if resume is True else resume or "never"
    saved = saved_options(out) if resumes == "auto" else {}
    requested = _requested_options(config, preset, options, model=saved.get("model"))
    requested |= options_of_world(requested)
    if saved:
        return TrainConfig.from_options(options_to_resume(out, saved, requested)), resumes
    started = TrainConfig.from_options(with_base(requested, left_out=_left_at_defaults(config) - options.keys()))
    check_pretrained(started)
    return started, resumes


def _left_at_defaults(config: Any) -> set[str]:
    """Return the model options that have their default value in a config."""
    if not isinstance(config, TrainConfig):
        return set()
    fields = option_fields(type(config.model))
    return {name for name, field in fields.items() if getattr(config.model, name) == field.default}


def _requested_options(
    config: TrainConfig | str | os.PathLike[str] | None, preset: str | None, options: Any, *, model: str | None
) -> dict[str, Any]:
    """Return the passed options, flat. Single options replace those of the config, which replace those of the preset.

    model: model of the run to resume, used if no other is named.
    """
    if not (config is None or isinstance(config, TrainConfig | str | os.PathLike)):
        raise TypeError(
            f"config is of type {type(config).__name__}. Pass a gm.lm.TrainConfig or the path of a YAML file. Pass "
            f"single options as keywords."
        )
    in_preset, named = preset_options(preset, options), options.get("model")
    model = named.name if isinstance(named, ModelConfig) else named or in_preset.get("model", model)
    written: dict[str, Any] = {}
    if config is not None:
        written = config.to_json() if isinstance(config, TrainConfig) else read_config(config, model=model)
    model = model or written.get("model", GPTConfig.name)
    names = {**inspect.signature(train).parameters, **options_of_model(model)}
    check_option_names("train", options, names, OTHER_NAMES)
    given = normalized({**without_length(written, options), **options}, source="the options", model=model)
    return {**without_length(in_preset, given), **given, "model": given.get("model", model)}


def _train(
    fabric: Fabric,
    config: TrainConfig,
    data: TrainingData,
    replacement: Replacement,
    folder: Path,
    messages: list[str],
    progress: Any,
    loggers: Sequence[Any],
) -> TrainResult:
    say_starting(progress, "building the model")
    with span("build model"):
        built = Run(fabric, config, data, folder, replacement, loggers=loggers)
    with contextlib.closing(built) as run:
        shown = progress if fabric.is_global_zero else None
        with open_display(shown, total=run.max_steps, initial=run.step, compiles=config.compile_model) as display:
            run.recorder.show_on(display, messages, step=run.step)
            return train_to_the_end(run)


def train_to_the_end(run: Run) -> TrainResult:
    """Train to the end, or until a signal stops the run, and save a checkpoint of the last step in both cases."""
    # A launcher sends SIGTERM to the remaining processes when one exits. The signal is deferred until they have found
    # out which process that was.
    with run.signals, naming_lost_processes(), without_garbage_collection():
        train_steps(run)
        if not run.agree_to_stop():
            run.finish()
        run.save()
        run.saver.writer.wait()
        run.fabric.barrier()  # only the first process writes, and all read the result
        stopped = run.agree_to_stop()  # a signal may have arrived in the meantime
    if stopped:
        run.notify(f"stopped at step {run.step:,} and saved a checkpoint. Pass resume='auto' to resume.")
        run.signals.act()
    return run.result()


def train_steps(run: Run) -> None:
    """Run the training loop."""
    config, fabric, num_micro_steps = run.config, run.fabric, run.config.gradient_accumulation_steps
    averaging = {"loss": "token", **config.model.STATISTICS}
    _fix_order_of_sums(run)
    _calibrate(run)
    run.meter.restart()
    if run.validation.is_missing(run.step):  # a signal interrupted the validation of this step
        run.validate()
    while run.step < run.max_steps and not run.should_stop():
        with span("step", step=run.step):
            schedule = run.begin_step()
            losses = torch.zeros(len(averaging), device=fabric.device)
            for micro_step in range(num_micro_steps):
                batch = run.next_batch(micro_step)
                share = run.share_of_step(batch)
                with fabric.no_backward_sync(run.module, enabled=micro_step + 1 < num_micro_steps):
                    stats = run.compute(batch, schedule, share)
                shares = {"token": share, "sequence": 1 / num_micro_steps}
                losses += torch.stack([stats[name] * shares[averaging[name]] for name in averaging])
            grad_norm = run.update_weights()
            run.end_step(losses, grad_norm, batch, stats)
        run.recorder.display.tick(run.step)
        if run.is_due(config.log_interval) or run.step == run.max_steps or run.updates.has_failed:
            run.log()
        if run.is_due(config.val_check_interval) or run.step == run.max_steps:
            run.validate()
        if run.is_due(config.sample_interval):
            run.write_sample()
        if run.is_due(config.checkpoint_interval):
            run.save()


def _fix_order_of_sums(run: Run) -> None:
    """Run a step that changes nothing, so that ddp sums the gradients of all steps in the same order.

    In its first step, ddp finds the order in which gradients become ready, and packs them into buckets in that order
    from then on. The position of a gradient in its bucket decides the order in which the processes add their parts, and
    with three or more processes the rounding of the sum depends on that order. Without this step, the first step after
    resuming would be rounded differently.
    """
    if run.fabric.world_size <= 2 or run.is_sharded or run.step >= run.max_steps:
        return
    buffers = {name: buffer.clone() for name, buffer in run.model.named_buffers()}
    schedule = run.begin_step()
    loss, _ = run.module(dict(vars(run.next_batch(0))), schedule)
    run.fabric.backward(loss)
    run.module.zero_grad(set_to_none=True)
    for name, buffer in run.model.named_buffers():
        buffer.copy_(buffers[name])
    # Not restored like buffers: the pass may have allocated them. Between two steps they are 0.
    for tensor in () if run.kernels is None else run.kernels.changed():
        tensor.zero_()


def _calibrate(run: Run) -> None:
    """Find the scales of 8-bit floats by passes over the first batch that change nothing else."""
    while run.kernels is not None and run.kernels.needs_calibration and run.step < run.max_steps:
        schedule, batch = run.begin_step(), run.next_batch(0)
        loss, _ = run.module(dict(vars(batch)), schedule)
        run.fabric.backward(loss * run.share_of_step(batch))
        run.module.zero_grad(set_to_none=True)
        run.prepare_kernels()


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable Python's garbage collector during the loop: a pass over all objects of torch stalls the device.

    If the program has frozen objects itself, they stay frozen: `gc.unfreeze` would unfreeze those too.
    """
    was_enabled, has_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.collect()
    if not has_frozen:
        gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not has_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def memory_advice(config: TrainConfig) -> Iterator[None]:
    """Convert out-of-memory errors in the block to a `TrainingError` that names the options to change."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(out_of_memory(config)) from error
