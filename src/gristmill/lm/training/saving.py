"""Saver: saves checkpoints of a run. The run waits while tensors are copied, not while they are written.

In a sharded run, every process copies and writes its rows. Otherwise the first process writes everything.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training.meters import Pending
from gristmill.lm.training.set_up import share_buffers

if TYPE_CHECKING:
    from gristmill.lm.training.run import Run

__all__ = ["Saver"]


class Saver:
    """Writes the state of a run, at most once per step."""

    def __init__(self, folder: Path, *, keep: int, notify: Callable[[str], None], is_sharded: bool = False) -> None:
        """is_sharded: no device has all weights. Every process then has a `Saver` and writes its own part."""
        self.writer = _writer(is_sharded)(folder, keep=keep, notify=notify)
        self.saved_step = -1
        self._folder = folder

    def save(self, run: Run, pending: Pending) -> None:
        """Save a checkpoint of this step, unless it is already saved."""
        if self.saved_step == run.step:
            return
        share_buffers(run.fabric, run.model)
        if run.fabric.is_global_zero or run.is_sharded:
            tensors, numbers = run.optimizers.state_tensors()
            files = {
                checkpoints.MODEL_FILE: _copies(run.model.state_dict()),
                checkpoints.OPTIMIZER_FILE: _copies(tensors),
            }
            state: dict[str, Any] = {"step": run.step}
            if run.fabric.is_global_zero:
                run.recorder.flush()
                state = {**_state(run, pending), "optimizer": numbers}
                if run.kernels is not None and (scales := run.kernels.state()):
                    state["float8"] = scales
                if run.watch is not None:
                    watched, state["monitor"] = run.watch.state_tensors()
                    files[checkpoints.MONITOR_FILE] = _copies(watched)
            self.writer.write(state, files)
        self.saved_step = run.step
        gc.collect()

    def add_validation(self, run: Run) -> None:
        """Add a validation loss to the checkpoint of this step, if the checkpoint was written before the validation."""
        if self.saved_step != run.step:
            return
        self.writer.wait()
        if run.fabric.is_global_zero:
            folder = checkpoints.find_checkpoint(self._folder, checkpoints.name_of(run.step))
            checkpoints.update_state(folder, {**_losses(run), "val_sequences": run.validation.num_sequences})

    def close(self) -> None:
        """Wait for pending writes."""
        self.writer.close()


def _state(run: Run, pending: Pending) -> dict[str, Any]:
    return {
        "step": run.step,
        "num_tokens": run.num_tokens,
        "config": run.config.to_json(),
        "shards": run.data.identity,
        **_losses(run),
        "val_sequences": run.validation.num_sequences,
        "pending": pending,
        "seconds": run.meter.seconds,
        "scaler": run.fabric.strategy.precision.state_dict(),
    }


def _losses(run: Run) -> dict[str, float | None]:
    return {
        "val_loss": _finite(run.validation.loss_of(run.step)),
        "best_val_loss": _finite(run.validation.best_loss),
    }


def _finite(loss: float | None) -> float | None:
    """Return the loss, or None if it is not finite, which JSON cannot represent."""
    return loss if loss is not None and math.isfinite(loss) else None


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies in main memory. A copy of a sharded tensor has the rows of this process."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _writer(is_sharded: bool) -> type[checkpoints.CheckpointWriter]:
    if not is_sharded:
        return checkpoints.CheckpointWriter
    from gristmill.lm.training.sharded import ShardedWriter  # imported late because it is slow

    return ShardedWriter
