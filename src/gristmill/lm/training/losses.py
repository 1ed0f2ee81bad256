"""The loss of a model: as a module that can be compiled and distributed, and as a mean over many batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from gristmill.errors import OptionError
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.models.config import Averaging
from gristmill.trace import span

__all__ = ["LossModule", "MeanLoss", "mean_loss", "num_val_sequences"]


class LossModule(nn.Module):
    """The loss of a model as the forward pass of a module, to compile and to distribute over devices.

    Takes the fields of a batch as a dict, because wrappers look for tensors in their arguments and support dicts.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, fields: dict[str, Any], schedule: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the result of `model.loss` for the batch of these fields, with recorded statistics detached."""
        loss, stats = _checked(self.model.loss(Batch(**fields), schedule), self.model)  # type: ignore[operator]
        config = getattr(self.model, "config", None)
        declared = {name: _found(stats, name, self.model) for name in getattr(config, "STATISTICS", ())}
        recorded = {"loss": stats.get("loss", loss), **declared}
        return loss, {**stats, **{name: _detached(value, loss) for name, value in recorded.items()}}


def _checked(found: Any, model: nn.Module) -> tuple[Tensor, dict[str, Any]]:
    """Return the result of a model's `loss`; raise `OptionError` if it is unusable."""
    name = f"{type(model).__name__}.loss"
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
        raise OptionError(f"{name} returned a {type(found).__name__}. Return (loss, stats): a tensor and a dict.")
    loss, stats = found
    if not isinstance(loss, Tensor) or loss.ndim:
        shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise OptionError(f"{name} returned a loss of {shape}. Return a tensor with a single number, such as a mean.")
    if torch.is_grad_enabled() and model.training and not loss.requires_grad:
        raise OptionError(f"{name} returned a loss without a gradient. Return a loss that is not detached.")
    return loss, stats


def _found(stats: Mapping[str, Any], name: str, model: nn.Module) -> Any:
    if name not in stats:
        raise OptionError(
            f"{type(model).__name__}.loss returns no {name!r}, which STATISTICS of its config declares. Add it to the "
            f"stats that loss returns, or remove it from STATISTICS."
        )
    return stats[name]


def _detached(value: Any, loss: Tensor) -> Tensor:
    """Return a statistic as a detached tensor. Its graph would keep the activations of every step until it is read."""
    return value.detach() if isinstance(value, Tensor) else torch.as_tensor(float(value), device=loss.device)


@dataclass(frozen=True, slots=True)
class MeanLoss:
    """Mean loss over some batches, and the requested statistics."""

    loss: float  # nats per token
    num_tokens: int
    stats: dict[str, float] = field(default_factory=dict)


@torch.no_grad()
def mean_loss(
    module: nn.Module,
    batches: Iterable[Batch],
    *,
    stats: Mapping[str, Averaging] = MappingProxyType({}),
    reduce_sum: Callable[[Tensor], Tensor] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    seed: int = 0,
) -> MeanLoss | None:
    """Return the mean loss over the batches of all ranks, or None if it was stopped.

    Each target has the same weight, independent of how the batches are divided. The schedule is empty, so a model uses
    its defaults: a VAE has a KL weight of 1. A VAE draws its latents from `seed`, so they are the same each time for
    the same batches. Restores the mode of the module and torch's generators.

    stats: statistics of the model to return, and whether each is a mean per "token" or per "sequence" of a batch.
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
                with span("validation batch"), autocast():
                    part = _sums(module, batch, stats)
                total = part if total is None else total + part
    finally:
        module.train(was_training)
    if total is None:
        return None
    loss_sum, num_tokens, num_sequences, *sums = (total if reduce_sum is None else reduce_sum(total)).tolist()
    counts = {"token": num_tokens, "sequence": num_sequences}
    means = {name: value / counts[stats[name]] for name, value in zip(stats, sums, strict=True)}
    return MeanLoss(loss_sum / num_tokens, round(num_tokens), means)


def _sums(module: nn.Module, batch: Batch, stats: Mapping[str, Averaging]) -> Tensor:
    """Return the sums over a batch: loss, targets, sequences, and each statistic."""
    loss, found = module(dict(vars(batch)), {})
    counted_BT = batch.targets_BT != IGNORED
    counts = {"token": counted_BT.sum(), "sequence": counted_BT.any(1).sum()}
    sums = [loss.double() * counts["token"], counts["token"], counts["sequence"]]
    sums += [found[name].double() * counts[average] for name, average in stats.items()]
    # A batch with only padding has the loss 0 / 0.
    return torch.where(counts["token"] > 0, torch.stack([each.double() for each in sums]), 0.0)


def num_val_sequences(limit: int | float | None, *, total: int, batch_size: int) -> int:
    """Return how many of `total` sequences a validation uses, for the value of `limit_val_batches`.

    A run computes this once, at its first start, so that it validates on the same sequences if it is resumed with
    another batch size, and `best_val_loss` stays comparable. None and 0 mean all sequences, a float a fraction of them,
    and a whole number that many batches of `batch_size`.

    >>> num_val_sequences(32, total=10_000, batch_size=8), num_val_sequences(0.1, total=10_000, batch_size=8)
    (256, 1000)
    """
    if limit is None or limit == 0:
        return total
    wanted = max(1, round(limit * total)) if isinstance(limit, float) else limit * batch_size
    return min(wanted, total)
