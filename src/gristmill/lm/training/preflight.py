"""Checks before a run changes anything: before its folder is created and its processes are started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.lm.training.config import TrainConfig, resolved
from gristmill.lm.training.pretrained import check_vocabulary
from gristmill.lm.training.schedules import learning_rate
from gristmill.lm.training.writers import check_writer

if TYPE_CHECKING:
    from gristmill.lm.data.training_data import TrainingData

__all__ = ["check_plan"]


def check_plan(config: TrainConfig, data: TrainingData) -> None:
    """Raise `OptionError` if the batches, the vocabulary or the schedule do not fit the data and the devices.

    Raises `MissingPackageError` if the package that `log` names is not installed.

    The number of steps is also known with batch_size="auto": it depends on the sequences per step, not on the size of a
    micro-batch.
    """
    check_writer(config.log)
    check_vocabulary(config, data)
    world_size = config.devices * config.num_nodes
    size = 1 if config.batch_size == "auto" else int(config.batch_size)
    plan = resolved(config, data, batch_size=size, world_size=world_size)
    assert plan.max_steps is not None  # the config is resolved
    learning_rate(
        0,
        peak=plan.learning_rate,
        warmup_steps=int(plan.warmup_steps),
        total_steps=plan.max_steps,
        shape=plan.schedule,
        final_fraction=plan.final_fraction,
        decay_fraction=plan.decay_fraction,
    )
