"""Evaluate: the loss of a model on held-out shards, and its bits per byte, which compare across tokenizers."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gristmill.errors import CheckpointError, OptionError
from gristmill.lm.batch import IGNORED, Batch
from gristmill.lm.checkpoint import find_checkpoint, identity_differences, load_model, read_state, shards_identity
from gristmill.lm.dataset import TokenDataset
from gristmill.shards import Shards

__all__ = ["Evaluation", "LossModule", "bits_per_byte", "evaluate", "mean_loss"]


class LossModule(nn.Module):
    """The loss of a model as the forward pass of a module: what is compiled, and what devices share.

    It takes the fields of a batch, not the batch: wrappers look for tensors in what they are given, and know dicts.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, fields: dict[str, Any], schedule: dict[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
        """What `model.loss` gives for the batch of these fields."""
        loss, stats = self.model.loss(Batch(**fields), schedule)  # type: ignore[operator]
        return loss, stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How well a model predicts a split."""

    loss: float  # nats a token
    bits_per_byte: float
    num_tokens: int  # that were predicted
    full: bool  # all windows of the split, not a subset
    seconds: float


@torch.no_grad()
def mean_loss(
    module: nn.Module,
    batches: Iterable[Batch],
    *,
    reduce_sum: Callable[[Tensor], Tensor] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[float, int] | None:
    """(mean loss, number of targets) over the batches of all ranks; None if it was stopped on the way.

    Each target counts once, however the batches are cut. The module is back in its mode afterwards.
    """
    was_training = module.training
    module.eval()
    total: Tensor | None = None
    try:
        for batch in batches:
            if stopped():
                return None
            loss, _ = module(dict(vars(batch)), {})
            count = (batch.targets_BT != IGNORED).sum()
            # A batch of nothing but padding has the loss 0 / 0.
            part = torch.stack([torch.where(count > 0, loss.float() * count, 0.0), count.float()]).double()
            total = part if total is None else total + part
    finally:
        module.train(was_training)
    if total is None:
        return None
    loss_sum, num_targets = (total if reduce_sum is None else reduce_sum(total)).tolist()
    return loss_sum / num_targets, round(num_targets)


def bits_per_byte(loss: float, shards: Shards) -> float:
    """The bits that a byte of the texts costs: nats a token, over the bytes that a token of this split stands for."""
    return loss / math.log(2) * shards.num_tokens / max(shards.source_bytes, 1)


def num_val_batches(limit: int | float | None, dataset: TokenDataset) -> int | None:
    """How many batches of `dataset.validation_batches` to take for `limit_val_batches`; None for all of them."""
    total = math.ceil(dataset.num_windows / dataset.batch_size)
    if limit is None or limit == 0:
        return None
    wanted = max(1, round(limit * total)) if isinstance(limit, float) else limit
    return None if wanted >= total else wanted


def evaluate(
    run: str | os.PathLike[str],
    shards: str | os.PathLike[str] | Shards,
    *,
    split: str = "val",
    which: str = "best",
    batch_size: int | None = None,
    limit_batches: int | float | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> Evaluation:
    """The loss of a checkpoint of a run on a split of shards that its tokenizer made.

    `which` is "best", "latest" or the name of a checkpoint. All windows are taken unless `limit_batches` says less.
    """
    opened = shards if isinstance(shards, Shards) else Shards(shards, split=split)
    _check_tokenizer(Path(run), which, opened)
    target = _find_device(device)
    model, config = load_model(run, which=which, device=target)
    dataset = TokenDataset(
        opened,
        context_length=config.context_length,
        batch_size=batch_size or (config.batch_size if isinstance(config.batch_size, int) else 1),
        seed=config.seed,
        document_mask=config.document_mask,
        device=target,
    )
    number = num_val_batches(limit_batches, dataset)
    begin = time.perf_counter()
    with _autocast(config.precision if precision == "auto" else precision, target):
        found = mean_loss(LossModule(model), dataset.validation_batches(number))
    assert found is not None  # a dataset has at least one window
    loss, num_tokens = found
    return Evaluation(
        loss=loss,
        bits_per_byte=bits_per_byte(loss, opened),
        num_tokens=num_tokens,
        full=number is None,
        seconds=time.perf_counter() - begin,
    )


def _find_device(device: str) -> torch.device:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(name for name in there if there[name]) if device == "auto" else device
    if not there.get(kind.partition(":")[0], False):
        raise OptionError(f"device={device!r}: torch finds none here. Pass device='cpu'.")
    return torch.device(kind)


def _check_tokenizer(run: Path, which: str, shards: Shards) -> None:
    folder = find_checkpoint(run, which)
    then = read_state(folder)["shards"]
    now = shards_identity(shards)
    if found := identity_differences({**now, "tokenizer_fingerprint": then["tokenizer_fingerprint"]}, now):
        raise CheckpointError(
            f"{folder}: it does not fit the shards: {found[0]}. Encode the text with {run / 'tokenizer.json'}."
        )


def _autocast(precision: str, device: torch.device) -> Any:
    dtypes = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32": None}
    if precision not in dtypes:
        raise OptionError(f"precision={precision!r} is not known. Pass one of 'bf16-mixed', '16-mixed', '32'.")
    dtype = dtypes[precision]
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)
