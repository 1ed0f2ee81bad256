"""Restoring: resume a run from its latest checkpoint, or start one with the weights of another."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from gristmill.errors import CheckpointError, GristmillError
from gristmill.lm.data.identity import identity_differences
from gristmill.lm.data.training_data import TrainingData
from gristmill.lm.explain import CHECKPOINTS, CONFIG_FILE, STATE_FILE
from gristmill.lm.models.model import Model
from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training.config import TrainConfig, differences, is_longer
from gristmill.lm.training.precision import restore_scaler
from gristmill.lm.training.pretrained import is_pretrained, pretrained_options, read_tensors, tokenizer_difference

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.training.run import Run

__all__ = ["check_same_run", "find_latest", "restore", "take_weights"]

Notify = Callable[[str], None]

# Entries of a state without which a run cannot resume. Version 0.1.0 did not write the others.
_NEEDED = ("config", "shards", "optimizer", "scaler", "pending", "val_loss", "best_val_loss")
LONG_CONTEXT = 4096  # tokens; few machines train on longer sequences


def find_latest(
    fabric: Fabric, run_folder: Path, *, overwrite: bool = False
) -> tuple[Path | None, dict[str, Any] | None]:
    """Return (the latest checkpoint of a run, its state), or (None, None) without one or with `overwrite`.

    Raises `CheckpointError` if it is damaged, and names the previous one. It is not skipped, because steps that may
    have taken days would silently be computed again. The user decides whether to remove it.
    """
    if overwrite:
        return None, None
    # The first process decides, because the others may list the folder at another moment.
    names = [path.name for path in checkpoints.list_checkpoints(run_folder)]
    name = fabric.broadcast(names[-1] if names else "")
    if not name:
        return None, None
    latest = run_folder / CHECKPOINTS / name
    state = checkpoints.read_state(latest)
    if missing := [entry for entry in _NEEDED if entry not in state]:
        raise checkpoints.damage_error(latest / STATE_FILE, f"has no {missing[0]}")
    for option in ("batch_size", "global_batch_size"):
        size = (state["config"] or {}).get(option)
        if type(size) is not int or size < 1:
            raise checkpoints.damage_error(latest / STATE_FILE, f"{option} in its config is {size!r:.80}")
    return latest, state


def check_same_run(folder: Path, state: dict[str, Any], config: TrainConfig, data: TrainingData) -> None:
    """Raise `CheckpointError` unless a checkpoint has the options in `config` and the same data."""
    run = folder.parent.parent
    found = identity_differences(state["shards"], data.identity, run=run, tokenizer=data.tokenizer)
    found += differences(state["config"], config)
    if found:
        raise CheckpointError(
            f"{folder}: the run cannot be resumed: {'; '.join(found)}. Pass the original values, or start a new run in "
            f"another folder."
        )


def restore(run: Run, folder: Path, state: dict[str, Any], notify: Notify) -> None:
    """Restore a checkpoint; raise `CheckpointError` if it does not fit the run."""
    try:
        _restore(run, folder, state, notify)
    except GristmillError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # The checksum of the state is correct, so it was forged, or written by another version.
        why = f"not the state of this run ({type(error).__name__}: {error!s:.200})"
        raise checkpoints.damage_error(folder / STATE_FILE, why) from error


def _restore(run: Run, folder: Path, state: dict[str, Any], notify: Notify) -> None:
    check_same_run(folder, state, run.config, run.data)
    if rounding := differences(state["config"], run.config, only_rounding=True):
        notify(f"the run resumes, equal up to rounding but not bit-exact: {'; '.join(rounding)}.")
    run.optimizers.load_state_tensors(_load_weights(run, folder, state), state["optimizer"])
    restore_scaler(run.fabric, state["scaler"])
    # With another float8, the scales of other tensors are needed. They are found again.
    if run.kernels is not None and state["config"].get("float8", "off") == run.config.float8:
        run.kernels.load_state(state.get("float8", {}))
    run.meter.restore(state["pending"])
    run.step = state["step"]
    # Version 0.1.0 did not save the number of tokens. All its steps had the same length.
    each = int(state["config"]["global_batch_size"]) * run.config.model.sequence_length
    run.num_tokens = state.get("num_tokens", run.step * each)
    if run.watch is not None:
        has_state = "monitor" in state
        watched = checkpoints.read_tensors(folder, checkpoints.MONITOR_FILE, state) if has_state else None
        run.watch.load_state(run.step, watched, state.get("monitor"))
    run.validation.restore(run.step, state)
    if run.validation.best_loss == math.inf and state["best_val_loss"] is not None:
        notify(
            f"limit_val_batches was {state['config'].get('limit_val_batches')} and is now "
            f"{run.config.limit_val_batches}: the best checkpoint is chosen again from this step on, because losses on "
            f"different parts of the validation split are not comparable."
        )
    if is_longer(state["config"], run.config):
        notify(
            f"the run now has {run.config.max_steps:,} steps instead of {state['config']['max_steps']:,}. From here "
            f"on, the learning rate follows the schedule of the longer run."
        )
    notify(f"resuming from {folder.name}.")


def _load_weights(run: Run, folder: Path, state: dict[str, Any]) -> dict[str, Tensor]:
    """Copy the weights of a checkpoint to the model, and return the optimizer state."""
    if run.is_sharded:
        from gristmill.lm.training import sharded  # imported late because it is slow

        sharded.load_weights(run.model, folder, state)
        return sharded.load_optimizer(run.model, folder, state)
    weights = checkpoints.read_tensors(folder, checkpoints.MODEL_FILE, state)
    checkpoints.load_weights(run.model, weights, folder / checkpoints.MODEL_FILE)
    return checkpoints.read_tensors(folder, checkpoints.OPTIMIZER_FILE, state)


def take_weights(model: Model, start: Path, notify: Notify, *, tokenizer: Tokenizer | None = None) -> None:
    """Copy the weights of the best checkpoint of another run, or of a Hugging Face folder, to the model.

    Options that add a weight, such as word dropout, may differ: that weight is skipped or keeps its initial value.

    start: the folder. tokenizer: tokenizer of the training data, compared with that of a Hugging Face folder.
    """
    if is_pretrained(start):
        _take_pretrained(model, start, notify, tokenizer)
        return
    run_folder = start
    folder = checkpoints.find_checkpoint(run_folder, "best")
    there = checkpoints.read_tensors(folder, checkpoints.MODEL_FILE, checkpoints.read_state(folder))
    here = model.state_dict()
    different = sorted(name for name in here.keys() ^ there.keys() if name.startswith(model.SWITCHED_WEIGHTS))
    both = {name: tensor for name, tensor in there.items() if name not in different}
    kept = {name: here[name] for name in different if name in here}
    checkpoints.load_weights(model, both | kept, folder / checkpoints.MODEL_FILE)
    notify(f"starting with the weights of {folder}{', except ' if different else ''}{', '.join(different)}.")


def _take_pretrained(model: Model, folder: Path, notify: Notify, tokenizer: Tokenizer | None) -> None:
    tensors = read_tensors(folder)
    if bad := checkpoints.first_not_finite(tensors):
        raise CheckpointError(
            f"{folder}: the weights are not finite: {bad!r} contains NaN or infinity. Pass another model."
        )
    weights = type(model).weights_of_huggingface(model.config, tensors, str(folder))
    checkpoints.load_weights(model, weights, folder)
    if difference := tokenizer_difference(folder, tokenizer):
        notify(difference)
    notify(f"starting with the weights of {folder}.")
    length = model.config.sequence_length
    if length > LONG_CONTEXT and pretrained_options(folder, model.config.name).get("context_length") == length:
        notify(
            f"context_length={length}, from {folder / CONFIG_FILE}: sequences of this length need much memory. Pass a "
            f"smaller context_length, such as 2048, to use less."
        )
