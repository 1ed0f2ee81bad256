"""Validation: the loss on held-out data during a run, and the choice of the best checkpoint.

The best checkpoint is chosen on one fixed subset of the validation split, also at the last step. The loss on the whole
split, which is computed once at the end, is recorded separately and never compared with losses on the subset.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from gristmill.lm.data.mixed_data import MixedValidation
from gristmill.lm.data.training_data import Dataset, TrainingData
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.losses import MeanLoss, mean_loss, num_val_sequences
from gristmill.lm.training.records import Record
from gristmill.lm.training.schedules import step_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lightning_fabric import Fabric

__all__ = ["Validation"]


class Validation:
    """The validations of a run."""

    def __init__(
        self, fabric: Fabric, config: TrainConfig, data: TrainingData, dataset: Dataset | None, module: nn.Module
    ) -> None:
        self.dataset = dataset
        self.best_loss = math.inf  # on the subset
        self._fabric, self._config, self._data, self._module = fabric, config, data, module
        self._last: tuple[int, float | None] = (-1, None)  # the last step validated on the subset, and its loss
        self.num_sequences = 0  # of the subset
        if dataset is not None:
            assert isinstance(config.batch_size, int)  # the config is resolved
            self.num_sequences = num_val_sequences(
                config.limit_val_batches, total=dataset.num_sequences, batch_size=config.batch_size
            )

    def loss_of(self, step: int) -> float | None:
        """Return the loss on the subset at this step, or None if it was not validated."""
        return self._last[1] if self._last[0] == step else None

    def restore(self, step: int, state: dict[str, Any]) -> None:
        """Resume from a checkpoint of `step`, with the same sequences even if the batch size has changed.

        If `limit_val_batches` has changed, the subset changes, and the best is chosen again from this step on.
        """
        before = self._num_sequences_of(state)
        if self.has_other_limit(state) and before != self.num_sequences:
            return
        self.num_sequences = before
        self.best_loss = math.inf if state["best_val_loss"] is None else state["best_val_loss"]
        if state["val_loss"] is not None:
            self._last = (step, state["val_loss"])

    def has_other_limit(self, state: dict[str, Any]) -> bool:
        """Return whether `limit_val_batches` differs from that of the resumed run."""
        return bool(state["config"].get("limit_val_batches") != self._config.limit_val_batches)

    def _num_sequences_of(self, state: dict[str, Any]) -> int:
        """Return the size of the subset of a saved run. Version 0.1 did not save it."""
        if "val_sequences" in state or self.dataset is None:
            return int(state.get("val_sequences", 0))
        config = state["config"]
        return num_val_sequences(
            config["limit_val_batches"], total=self.dataset.num_sequences, batch_size=config["batch_size"]
        )

    def is_missing(self, step: int) -> bool:
        """Return whether the validation of this step is due and missing. A signal may have interrupted it."""
        interval, max_steps = self._config.val_check_interval, self._config.max_steps
        is_due = step == max_steps or (interval > 0 and step % interval == 0)
        return self.dataset is not None and step > 0 and is_due and self._last[0] != step

    def on_subset(self, step: int, *, stopped: Callable[[], bool]) -> tuple[Record | None, bool]:
        """Return (the record, whether it is the best so far). The record is None if a signal interrupted it.

        stopped: called before each batch. All processes have the same number of batches.
        """
        record = self._validate(step, self.num_sequences, stopped)
        if record is None:
            return None, False
        self._last = (step, record["loss"])
        is_best = record["loss"] < self.best_loss
        self.best_loss = min(self.best_loss, record["loss"])
        return record, is_best

    def on_everything(self, step: int, *, stopped: Callable[[], bool]) -> Record | None:
        """Return the record of the whole split."""
        return self._validate(step, None, stopped)

    def _validate(self, step: int, num_sequences: int | None, stopped: Callable[[], bool]) -> Record | None:
        if self.dataset is None:
            return None
        begin, dataset = time.perf_counter(), self.dataset
        losses: dict[str, MeanLoss] = {}
        for name, (part, number) in _parts(dataset, num_sequences).items():
            loss = self._mean_loss(part, number, stopped)
            if loss is None:
                return None
            losses[name] = loss
        weights = dataset.weights if isinstance(dataset, MixedValidation) else None
        found = next(iter(losses.values())) if weights is None else _mixed(losses, weights)
        return {
            "kind": "val",
            "step": step,
            "loss": found.loss,
            **found.stats,
            **({} if weights is None else {"sources": {name: _finite(loss.loss) for name, loss in losses.items()}}),
            "bits_per_byte": self._data.bits_per_byte(found.loss, "val"),
            "num_tokens": found.num_tokens,
            "full": num_sequences in (None, self.dataset.num_sequences),
            "seconds": time.perf_counter() - begin,
        }

    def _mean_loss(self, dataset: Dataset, num_sequences: int | None, stopped: Callable[[], bool]) -> MeanLoss | None:
        fabric = self._fabric
        return mean_loss(
            self._module,
            dataset.validation_batches(
                num_sequences=num_sequences, rank=fabric.global_rank, world_size=fabric.world_size
            ),
            stats=self._config.model.STATISTICS,
            reduce_sum=partial(fabric.all_reduce, reduce_op="sum"),
            stopped=stopped,
            autocast=fabric.autocast,
            seed=step_seed(self._config.seed, 0, fabric.global_rank),
        )

    def close(self) -> None:
        """Stop reading ahead."""
        if self.dataset is not None:
            self.dataset.close()


def _parts(dataset: Dataset, num_sequences: int | None) -> dict[str, tuple[Dataset, int | None]]:
    """Return the datasets to measure separately, with their number of sequences: each source of a mixture, or all."""
    if not isinstance(dataset, MixedValidation):
        return {"": (dataset, num_sequences)}
    return {name: (dataset.parts[name], number) for name, number in dataset.divided(num_sequences).items()}


def _mixed(losses: Mapping[str, MeanLoss], weights: Mapping[str, float]) -> MeanLoss:
    """Return the loss on a mixture: the weighted sum over sources, independent of their measured sequences."""
    stats = {
        name: sum(weights[source] * loss.stats[name] for source, loss in losses.items())
        for name in next(iter(losses.values())).stats
    }
    total = sum(weights[source] * loss.loss for source, loss in losses.items())
    return MeanLoss(total, sum(loss.num_tokens for loss in losses.values()), stats)


def _finite(loss: float) -> float | None:
    """Return the loss, or None if it is not finite, which JSON cannot represent."""
    return loss if math.isfinite(loss) else None
