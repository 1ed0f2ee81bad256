"""The loss of a model: as a module that can be compiled and shared among devices, and as a mean over many batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.data.training_data import Dataset
from gristmill.lm.models.config import Averaging

__all__ = ["LossModule", "MeanLoss", "mean_loss", "num_val_batches"]


class LossModule(nn.Module):
    """The loss of a model as the forward pass of a module: what is compiled, and what devices share.

    It takes the fields of a batch, not the batch: wrappers look for tensors in what they are given, and know dicts.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, fields: dict[str, Any], schedule: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """What `model.loss` gives for the batch of these fields."""
        loss, stats = self.model.loss(Batch(**fields), schedule)  # type: ignore[operator]
        return loss, stats


@dataclass(frozen=True, slots=True)
class MeanLoss:
    """The loss over some batches."""

    loss: float  # nats a token
    num_tokens: int
    stats: dict[str, float]  # what else the model reports, each per token or per sequence


@torch.no_grad()
def mean_loss(
    module: nn.Module,
    batches: Iterable[Batch],
    *,
    stats: Mapping[str, Averaging] = {},
    reduce_sum: Callable[[Tensor], Tensor] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    seed: int = 0,
) -> MeanLoss | None:
    """The mean loss over the batches of all ranks; None if it was stopped on the way.

    Each target counts once, however the batches are cut. A VAE draws its latents by `seed`, the same each time. The
    module is back in its mode afterwards, and torch's generators where they were.
    """
    was_training = module.training
    module.eval()
    total: Tensor | None = None
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            for batch in batches:
                if stopped():
                    return None
                with autocast():
                    part = _sums(module, batch, stats)
                total = part if total is None else total + part
    finally:
        module.train(was_training)
    if total is None:
        return None
    loss_sum, num_targets, num_sequences, *sums = (total if reduce_sum is None else reduce_sum(total)).tolist()
    numbers = {"token": num_targets, "sequence": num_sequences}
    means = {name: each / numbers[stats[name]] for name, each in zip(stats, sums, strict=True)}
    return MeanLoss(loss_sum / num_targets, round(num_targets), means)


def _sums(module: nn.Module, batch: Batch, stats: Mapping[str, Averaging]) -> Tensor:
    """The sums over a batch: of the loss, of targets, of sequences, and of each statistic."""
    loss, found = module(dict(vars(batch)), {})
    counted_BT = batch.targets_BT != IGNORED
    counts = {"token": counted_BT.sum(), "sequence": counted_BT.any(1).sum()}
    count = counts["token"]
    sums = [loss.double() * count, *counts.values()]
    sums += [found[name].double() * counts[averaging] for name, averaging in stats.items()]
    # A batch of nothing but padding has the loss 0 / 0.
    return torch.where(count > 0, torch.stack([each.double() for each in sums]), 0.0)


def num_val_batches(limit: int | float | None, dataset: Dataset) -> int | None:
    """How many batches of `dataset.validation_batches` to take for `limit_val_batches`; None for all of them."""
    total = dataset.num_val_batches
    if limit is None or limit == 0:
        return None
    wanted = max(1, round(limit * total)) if isinstance(limit, float) else limit
    return None if wanted >= total else wanted
