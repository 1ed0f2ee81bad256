"""Evaluate: the loss of a model on held-out shards, and its bits per byte, which compare across tokenizers."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gristmill.errors import CheckpointError, OptionError
from gristmill.lm.data.training_data import TrainingData, check_data, is_shards, open_training_data
from gristmill.lm.explain import is_run
from gristmill.lm.training.checkpoint import find_checkpoint, identity_differences, load_model, read_state
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.losses import LossModule, mean_loss, num_val_batches
from gristmill.lm.training.schedules import step_seed
from gristmill.notebook import html_table
from gristmill.shards import Shards

__all__ = ["Evaluation", "evaluate"]


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
    asked = {**now, "tokenizer_fingerprint": then["tokenizer_fingerprint"]}
    if found := identity_differences(asked, now, run=run, tokenizer=data.tokenizer):
        raise CheckpointError(
            f"{folder}: it does not fit the {data.noun}: {found[0]}. Encode the text with {run / 'tokenizer.json'}."
        )


def _autocast(precision: str, device: torch.device) -> Any:
    dtypes = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32": None}
    if precision not in dtypes:
        raise OptionError(f"precision={precision!r} is not known. Pass one of 'bf16-mixed', '16-mixed', '32'.")
    dtype = dtypes[precision]
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)
