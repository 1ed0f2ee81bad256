"""The trainer: one loop, on any device, that can be stopped anywhere and goes on to the bit.

A step is a pure function of the weights, the optimizer's state and (config, step, rank): batches, learning rates and
the seed of dropout are reckoned from the number of the step. So a checkpoint is weights + optimizer + step, and
20 steps are the same as 10, a crash, and 10 more.

Lightning Fabric carries devices, precision and the processes of several devices; nobody else imports it.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack

import torch
from lightning_fabric import Fabric

from gristmill.arguments import check_option_names, show_options
from gristmill.errors import TrainingError
from gristmill.lm.data.training_data import TrainingData, open_training_data, warn_of_guessed_vocabulary
from gristmill.lm.training.advice import is_out_of_memory, out_of_memory
from gristmill.lm.training.config import OTHER_NAMES, TrainConfig
from gristmill.lm.training.devices import check_devices, launched
from gristmill.lm.training.options import TrainOptions, train_defaults
from gristmill.lm.training.preflight import check_plan
from gristmill.lm.training.presets import without_length
from gristmill.lm.training.processes import end_with_parent, is_first_process
from gristmill.lm.training.records import Record, open_display
from gristmill.lm.training.result import TrainResult
from gristmill.lm.training.run import Run
from gristmill.lm.training.run_folder import check_folder, make_folder
from gristmill.lm.training.run_parts import stat_names
from gristmill.packages import require_packages
from gristmill.shards import Shards

__all__ = ["TrainResult", "train"]

PER_TOKEN = ("loss", "reconstruction")  # of what models tell: means over tokens, where others are over sequences

Resume: TypeAlias = Literal["never", "auto"]
TrainProgress: TypeAlias = "Literal['auto', 'bar', 'jsonl'] | Callable[[Record], object] | None"


@show_options(TrainOptions, train_defaults())
def train(
    data: str | os.PathLike[str] | Shards,
    *,
    out: str | os.PathLike[str],
    config: TrainConfig | None = None,
    preset: str | None = None,
    resume: Resume = "never",
    overwrite: bool = False,
    progress: TrainProgress = "auto",
    **options: Unpack[TrainOptions],
) -> TrainResult:
    """Train a model on the data and leave everything about it in the folder `out`.

        gm.lm.train("shards/", out="run/", preset="quickstart", max_steps=200)

    data: a folder of token shards; for a VAE also Parquet files: a path, a folder or a glob.
    preset: options under a name: "quickstart" (two minutes on a CPU), "tinystories-17m", "gpt2-124m" and others.
    config: a `TrainConfig`. The options below replace what the preset, or the config, sets.
    resume: "auto" resumes the run that is in `out`, from its latest checkpoint, if there is one.
    overwrite: remove the run that is in `out` and start again.
    progress: "auto", "bar", "jsonl", None, or a callable that gets every record of metrics.jsonl.

    With several devices the program is started once more for each of the others, as Lightning does it.
    """
    end_with_parent()
    require_packages("gm.lm.train", "safetensors")  # before the work: a checkpoint could not be read
    check_option_names("train", options, inspect.signature(train).parameters, OTHER_NAMES)
    base = without_length(config.to_json(), options) if config else {}
    asked = TrainConfig.from_options({**base, **options}, preset=preset)
    check_devices(asked)
    if is_first_process():
        check_folder(Path(out), resume=resume, overwrite=overwrite)
    opened = open_training_data(data, asked, progress=progress if progress in (None, "auto", "bar") else None)
    check_plan(asked, opened)
    if is_first_process():
        warn_of_guessed_vocabulary(opened, asked)
        make_folder(Path(out), overwrite=overwrite)
    with launched(asked) as (fabric, settled):
        messages = [f"precision auto: {settled.precision} on {fabric.device.type}."] * (asked.precision == "auto")
        with _memory_advice(settled):
            return _train(fabric, settled, opened, Path(out), messages, progress)


def _train(
    fabric: Fabric, config: TrainConfig, data: TrainingData, folder: Path, messages: list[str], progress: Any
) -> TrainResult:
    with contextlib.closing(Run(fabric, config, data, folder)) as run:
        shown = progress if fabric.is_global_zero else None
        with open_display(shown, total=run.max_steps, initial=run.step) as run.display:
            run.tell_beginning(messages)
            return train_to_the_end(run)


def train_to_the_end(run: Run) -> TrainResult:
    """Train to the end, or to the signal that stops it; either way a checkpoint of the last step is left."""
    with run.signals, _without_garbage_collection():
        train_steps(run)
        if not run.stopped:
            run.finish()
        run.save()
        run.writer.wait()
        run.fabric.barrier()  # only the first process writes, and all read what came of it
    if run.stopped:
        run.tell(f"stopped at step {run.step:,}; everything is saved. Pass resume='auto' to resume.")
        run.signals.act()
    return run.result()


def train_steps(run: Run) -> None:
    """The loop."""
    config, fabric, num_micro_steps = run.config, run.fabric, run.config.gradient_accumulation_steps
    names, even_share = ("loss", *stat_names(run.model)), 1 / num_micro_steps
    run.meter.restart()
    while run.step < run.max_steps and not run.should_stop():
        run.begin_step()
        losses = torch.zeros(len(names), device=fabric.device)
        for micro_step in range(num_micro_steps):
            batch = run.next_batch(micro_step)
            with fabric.no_backward_sync(run.module, enabled=micro_step + 1 < num_micro_steps):
                micro_loss, stats = run.module(dict(vars(batch)), run.schedule)
                share = run.share_of_step(batch)
                fabric.backward(micro_loss * share)
            losses += torch.stack([stats[name] * (share if name in PER_TOKEN else even_share) for name in names])
        grad_norm = run.update_weights()
        run.end_step(losses, grad_norm, batch, stats)
        if run.is_due(config.log_interval) or run.step == run.max_steps or run.updates.has_failed:
            run.log()
        if run.is_due(config.val_check_interval):
            run.validate()
        if run.is_due(config.sample_interval):
            run.write_sample()
        if run.is_due(config.checkpoint_interval):
            run.save()


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep Python's collector out of the loop: a pass over all objects of torch stalls the device."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _memory_advice(config: TrainConfig) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(out_of_memory(config)) from error
