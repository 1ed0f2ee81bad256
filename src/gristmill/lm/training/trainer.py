"""The trainer: one loop, on any device, that can be stopped anywhere and resumes bit-exactly.

A step is a pure function of the weights, the optimizer's state and (config, step, rank): batches, learning rates and
the seed of dropout are computed from the number of the step. So a checkpoint is weights + optimizer + step, and
20 steps are the same as 10, a crash, and 10 more.

Lightning Fabric carries devices, precision and the processes of several devices; only this folder imports it.
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
from gristmill.lm.training.processes import end_with_parent, naming_the_lost, same_outcome
from gristmill.lm.training.records import Record
from gristmill.lm.training.replacing import Replacement, replacing
from gristmill.lm.training.result import TrainResult
from gristmill.lm.training.resuming import options_to_resume, saved_options
from gristmill.lm.training.run import Run
from gristmill.lm.training.run_folder import check_folder, check_shared, claimed
from gristmill.lm.training.writers import check_loggers
from gristmill.packages import require_packages

__all__ = ["Resume", "TrainResult", "asked_config", "memory_advice", "train"]

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
    """Train a model on the data and leave everything about it in the folder `out`.

        gm.lm.train("shards/", out="run/", preset="quickstart", max_steps=200)

    data: a folder of token shards; for a VAE also Parquet files: a path, a folder or a glob. A mixture of several
        folders is {"a": 0.7, "b": 0.3} or ["a:0.7", "b:0.3"], with shares of the tokens of the run, or ["a", "b"],
        with shares by size. With conversations=True, JSON lines of conversations: a file, folder or glob, or a
        list of them, one after the other.
    preset: options under a name: "quickstart" (two minutes on a CPU), "tinystories-17m", "gpt2-124m" and others.
    config: a `TrainConfig`, or the path of a YAML file with options. The options below replace what the preset, or the
        config, sets.
    resume: True (or "auto") resumes the run that is in `out`, from its latest checkpoint, if there is one. It has the
        options it was saved with. Those that are passed must be the same, except max_steps, which may be greater, and
        options that the weights do not depend on, such as intervals and loggers.
    overwrite: replace the run that is in `out`, which is kept until the new one has a checkpoint.
    progress: "auto", "bar", "jsonl", None, or a callable that gets every record of metrics.jsonl.
    loggers: loggers of Lightning, such as [lightning_fabric.loggers.CSVLogger("logs")], which get the numbers of every
        record and the options of the run. One that fails is left out, with a message.

    With several devices the program is started once more for each of the others, as Lightning does it. Under torchrun
    or srun, the launcher has started all processes, and decides how many there are.
    """
    end_with_parent()
    given_loggers = check_loggers(loggers)
    require_packages("gm.lm.train", "safetensors")  # before the work: a checkpoint could not be read
    asked, resumes = asked_config(Path(out), config, preset, dict(options), resume)
    check_devices(asked)
    shown = progress if is_first_process() else None
    with contextlib.ExitStack() as held:
        # Processes that others have started meet before one of them can fail: none shall wait for one that is gone.
        # Those that this one would start are started when nothing is left to be refused.
        meets_first = find_world() is not None or asked.num_nodes > 1
        met = held.enter_context(launched(asked)) if meets_first else None
        with same_outcome():
            opened = _opened(data, asked, Path(out), resume=resumes, overwrite=overwrite, progress=shown)
            replacement = held.enter_context(_owning(Path(out), asked, resume=resumes, overwrite=overwrite))
        fabric, settled = met or held.enter_context(launched(asked))
        if settled.num_nodes > 1:
            with same_outcome():
                check_shared(Path(out), fabric)
        messages = [f"precision auto: {settled.precision} on {fabric.device.type}."] * (asked.precision == "auto")
        messages += filter(None, [unused_tasks() if fabric.world_size == 1 else None])
        with memory_advice(settled):
            return _train(fabric, settled, opened, replacement, Path(out), messages, shown, given_loggers)


def _opened(
    data: TrainSources, asked: TrainConfig, out: Path, *, resume: str, overwrite: bool, progress: Any
) -> TrainingData:
    """The data of the run, once it is clear that the run can start in its folder and that its numbers fit the data."""
    if is_first_process():
        check_folder(out, resume=resume, overwrite=overwrite, init_from=asked.init_from)
    say_starting(progress, "opening the data")
    opened = asked.model.open_data(data, progress=progress if progress in (None, "auto", "bar") else None)
    check_plan(asked, opened)
    if is_first_process():
        warn_of_guessed_vocabulary(opened, asked.model.vocab_size)
    return opened


@contextlib.contextmanager
def _owning(folder: Path, config: TrainConfig, *, resume: str, overwrite: bool) -> Iterator[Replacement]:
    """Hold the lock of the folder, which only the first process takes, and keep the run that is to be replaced."""
    claim: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if is_first_process():
        size = config.devices * config.num_nodes
        world = str(find_world() or "") or f"{size} processes" * (size > 1)
        claim = claimed(folder, resume=resume, overwrite=overwrite, world=world)
    with claim, replacing(folder, overwrite=overwrite) as replacement:
        yield replacement


def asked_config(
    out: Path, config: Any, preset: str | None, options: dict[str, Any], resume: Resume
) -> tuple[TrainConfig, str]:
    """The config that is asked for, with the options of the run to resume underneath, and "auto" or "never"."""
    resumes = "auto" if resume is True else resume or "never"
    saved = saved_options(out) if resumes == "auto" else {}
    asked = _asked_options(config, preset, options, model=saved.get("model"))
    asked |= options_of_world(asked)
    if saved:
        return TrainConfig.from_options(options_to_resume(out, saved, asked)), resumes
    started = TrainConfig.from_options(with_base(asked, left_out=_left_at_defaults(config) - options.keys()))
    check_pretrained(started)
    return started, resumes


def _left_at_defaults(config: Any) -> set[str]:
    """The options of the model that a config, which has a value for all of them, leaves as they are."""
    if not isinstance(config, TrainConfig):
        return set()
    fields = option_fields(type(config.model))
    return {name for name, field in fields.items() if getattr(config.model, name) == field.default}


def _asked_options(
    config: TrainConfig | str | os.PathLike[str] | None, preset: str | None, options: Any, *, model: str | None
) -> dict[str, Any]:
    """The options that are passed, flat: the preset, then the config, then single options, each on top.

    model: that of the run to resume, which is meant where none is named.
    """
    if not (config is None or isinstance(config, TrainConfig | str | os.PathLike)):
        raise TypeError(
            f"config is a {type(config).__name__}. Pass a gm.lm.TrainConfig or the path of a YAML file; single options "
            f"are keywords."
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
    with contextlib.closing(Run(fabric, config, data, folder, replacement, loggers=loggers)) as run:
        shown = progress if fabric.is_global_zero else None
        with open_display(shown, total=run.max_steps, initial=run.step, compiles=config.compile_model) as display:
            run.recorder.show_on(display, messages, step=run.step)
            return train_to_the_end(run)


def train_to_the_end(run: Run) -> TrainResult:
    """Train to the end, or to the signal that stops it; either way a checkpoint of the last step is left."""
    # A launcher sends SIGTERM to the processes that are left when one is gone: it is noted until they know which.
    with run.signals, naming_the_lost(), _without_garbage_collection():
        train_steps(run)
        if not run.agree_to_stop():
            run.finish()
        run.save()
        run.saver.writer.wait()
        run.fabric.barrier()  # only the first process writes, and all read the result
        stopped = run.agree_to_stop()  # a signal may have come since
    if stopped:
        run.tell(f"stopped at step {run.step:,}; everything is saved. Pass resume='auto' to resume.")
        run.signals.act()
    return run.result()


def train_steps(run: Run) -> None:
    """The loop."""
    config, fabric, num_micro_steps = run.config, run.fabric, run.config.gradient_accumulation_steps
    averaging = {"loss": "token", **config.model.STATISTICS}
    _settle_order_of_sums(run)
    run.meter.restart()
    if run.validation.is_missing(run.step):  # a signal interrupted it
        run.validate()
    while run.step < run.max_steps and not run.should_stop():
        schedule = run.begin_step()
        losses = torch.zeros(len(averaging), device=fabric.device)
        for micro_step in range(num_micro_steps):
            batch = run.next_batch(micro_step)
            with fabric.no_backward_sync(run.module, enabled=micro_step + 1 < num_micro_steps):
                micro_loss, stats = run.module(dict(vars(batch)), schedule)
                share = run.share_of_step(batch)
                fabric.backward(micro_loss * share)
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


def _settle_order_of_sums(run: Run) -> None:
    """Take a step that changes nothing, so that ddp sums the gradients of all steps in the same order.

    In its first step ddp finds in which order gradients become ready, and packs them together in that order from then
    on. Where a gradient lies decides in which order the processes add their parts of it, and with three of them or more
    the sum depends on the order. Without this, the first step after a resumed checkpoint would be rounded differently.
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


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep Python's collector out of the loop: a pass over all objects of torch stalls the device.

    A program that has frozen objects itself keeps them frozen: `gc.unfreeze` would return its objects too.
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
    """Within the block, running out of memory is a `TrainingError` that names what to change."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(out_of_memory(config)) from error
