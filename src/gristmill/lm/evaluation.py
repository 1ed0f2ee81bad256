"""Evaluate: the loss of a model on held-out shards, and its bits per byte, which compare across tokenizers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gristmill.errors import CheckpointError, OptionError
from gristmill.lm.batch import IGNORED, Batch
from gristmill.lm.checkpoint import find_checkpoint, identity_differences, load_model, read_state
from gristmill.lm.config import TrainConfig
from gristmill.lm.explain import is_run
from gristmill.lm.schedule import step_seed
from gristmill.lm.training_data import Dataset, TrainingData, check_data, is_shards, open_training_data
from gristmill.notebook import html_table
from gristmill.shards import Shards

__all__ = ["Evaluation", "LossModule", "MeanLoss", "evaluate", "mean_loss"]


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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Evaluation:
    """How well a model predicts a split."""

    loss: float  # nats a token; of a VAE the bound
    reconstruction: float | None = None  # of a VAE, nats a token
    kl: float | None = None  # of a VAE, nats a sequence
    bits_per_byte: float | None
    num_tokens: int  # that were predicted
    full: bool  # all of the split, not a subset
    seconds: float

    def __repr__(self) -> str:
        bits = "" if self.bits_per_byte is None else f", bits_per_byte={self.bits_per_byte:.4f}"
        part = "" if self.full else ", full=False"
        return f"Evaluation(loss={self.loss:.4f}{bits}, num_tokens={self.num_tokens:,}{part})"

    def _repr_html_(self) -> str:
        return html_table("Evaluation", self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """What there is to show, as names and values."""
        rate = f"  ({self.num_tokens / self.seconds:,.0f} tokens/s)" if self.seconds else ""
        return [
            ("tokens", f"{self.num_tokens:,}{'' if self.full else ' (a subset)'}"),
            ("loss", f"{self.loss:.4f}"),
            *([("reconstruction", f"{self.reconstruction:.4f}")] if self.reconstruction is not None else []),
            *([("KL", f"{self.kl:.4f} nats per sequence")] if self.kl is not None else []),
            ("bits per byte", "-" if self.bits_per_byte is None else f"{self.bits_per_byte:.4f}"),
            ("time", f"{self.seconds:.2f} s{rate}"),
        ]


@dataclass(frozen=True, slots=True)
class MeanLoss:
    """The loss over some batches."""

    loss: float  # nats a token
    num_tokens: int
    reconstruction: float | None  # nats a token, of a model that has such a part
    kl: float | None  # nats a sequence


@torch.no_grad()
def mean_loss(
    module: nn.Module,
    batches: Iterable[Batch],
    *,
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
                    part = _sums(module, batch)
                total = part if total is None else total + part
    finally:
        module.train(was_training)
    if total is None:
        return None
    loss_sum, num_targets, *parts = (total if reduce_sum is None else reduce_sum(total)).tolist()
    mean, number = loss_sum / num_targets, round(num_targets)
    if not parts:
        return MeanLoss(mean, number, None, None)
    reconstruction_sum, kl_sum, num_sequences = parts
    return MeanLoss(mean, number, reconstruction_sum / num_targets, kl_sum / num_sequences)


def _sums(module: nn.Module, batch: Batch) -> Tensor:
    """The sums over a batch: of the loss and of targets; of a VAE also of reconstruction, of KL, and of sequences."""
    loss, stats = module(dict(vars(batch)), {"kl_weight": torch.ones((), device=batch.targets_BT.device)})
    counted_BT = batch.targets_BT != IGNORED
    count, num_sequences = counted_BT.sum(), counted_BT.any(1).sum()
    sums = [loss.double() * count, count]
    if "kl" in stats:
        sums += [stats["reconstruction"].double() * count, stats["kl"].double() * num_sequences, num_sequences]
    # A batch of nothing but padding has the loss 0 / 0.
    return torch.where(count > 0, torch.stack([each.double() for each in sums]), 0.0)


def num_val_batches(limit: int | float | None, dataset: Dataset) -> int | None:
    """How many batches of `dataset.validation_batches` to take for `limit_val_batches`; None for all of them."""
    total = dataset.num_val_batches
    if limit is None or limit == 0:
        return None
    wanted = max(1, round(limit * total)) if isinstance(limit, float) else limit
    return None if wanted >= total else wanted


def evaluate(
    run: str | os.PathLike[str],
    data: str | os.PathLike[str] | Shards,
    *,
    split: str = "val",
    which: str = "best",
    batch_size: int | None = None,
    limit_batches: int | float | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> Evaluation:
    """The loss of a checkpoint of a run on a split of shards that its tokenizer made.

    `which` is "best", "latest" or the name of a checkpoint. All of the split is taken unless `limit_batches` says less.
    For a VAE it is the bound (weight 1 on KL), and the data may be Parquet files, read as in training.
    """
    folder, target = Path(run), _find_device(device)
    check_data(data)
    _check_order(run, data)
    model, config = load_model(run, which=which, device=target)
    asked = _for_evaluation(config, folder, data, batch_size)
    opened = open_training_data(data, asked, split=split)
    _check_tokenizer(folder, which, opened)
    dataset = opened.open_dataset(asked, target, split)
    if dataset is None:
        raise OptionError(f"{data}: there is no split {split!r}: {opened.no_validation} Or take the split 'train'.")
    number = num_val_batches(limit_batches, dataset)
    begin = time.perf_counter()
    with _autocast(config.precision if precision == "auto" else precision, target):
        found = mean_loss(LossModule(model), dataset.validation_batches(number), seed=step_seed(config.seed, 0, 0))
    assert found is not None  # a dataset has at least one batch
    return Evaluation(
        loss=found.loss,
        reconstruction=found.reconstruction,
        kl=found.kl,
        bits_per_byte=opened.bits_per_byte(found.loss, split),
        num_tokens=found.num_tokens,
        full=number is None,
        seconds=time.perf_counter() - begin,
    )


def _check_order(run: str | os.PathLike[str], data: str | os.PathLike[str] | Shards) -> None:
    if not isinstance(data, Shards) and is_shards(run) and is_run(Path(data)):
        raise OptionError(f"{run} holds token shards, and {data} is a run. Pass the run first, then the shards.")


def _for_evaluation(config: TrainConfig, run: Path, data: Any, batch_size: int | None) -> TrainConfig:
    """The config of the run, for other batches perhaps: Parquet is read as in training, shards as they are."""
    size = batch_size or (config.batch_size if isinstance(config.batch_size, int) else 1)
    reading: dict[str, Any] = {}
    if config.model == "vae" and is_shards(data):
        columns = ("tokenizer", "text_column", "tokens_column", "embedding_columns")
        reading = {**dict.fromkeys(columns), "val_fraction": TrainConfig.val_fraction}
    elif config.model == "vae" and (run / "tokenizer.json").exists():
        reading = {"tokenizer": str(run / "tokenizer.json")}
    return TrainConfig.from_options({**config.to_json(), "batch_size": size, **reading})


def _find_device(device: str) -> torch.device:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(name for name in there if there[name]) if device == "auto" else device
    if not there.get(kind.partition(":")[0], False):
        raise OptionError(f"device={device!r}: torch finds none here. Pass device='cpu'.")
    return torch.device(kind)


def _check_tokenizer(run: Path, which: str, data: TrainingData) -> None:
    folder = find_checkpoint(run, which)
    then, now = read_state(folder)["shards"], data.identity
    if found := identity_differences({**now, "tokenizer_fingerprint": then["tokenizer_fingerprint"]}, now):
        raise CheckpointError(
            f"{folder}: it does not fit the {data.noun}: {found[0]}. Encode the text with {run / 'tokenizer.json'}."
        )


def _autocast(precision: str, device: torch.device) -> Any:
    dtypes = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32": None}
    if precision not in dtypes:
        raise OptionError(f"precision={precision!r} is not known. Pass one of 'bf16-mixed', '16-mixed', '32'.")
    dtype = dtypes[precision]
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)
