"""Evaluate: loss and perplexity of a model on held-out shards, and bits per byte, which compare across tokenizers."""

from __future__ import annotations

import math
import os
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gristmill.errors import CheckpointError, OptionError
from gristmill.lm.data.identity import identity_differences
from gristmill.lm.data.training_data import TrainingData, check_data, is_shards
from gristmill.lm.explain import is_run
from gristmill.lm.option_types import Count, Steps, check_options
from gristmill.lm.training.checkpoint import find_checkpoint, load_model, read_state
from gristmill.lm.training.losses import LossModule, mean_loss, num_val_sequences
from gristmill.lm.training.schedules import step_seed
from gristmill.lm.use.device import find_device
from gristmill.notebook import html_table
from gristmill.shards import Shards

__all__ = ["Evaluation", "evaluate"]


# How statistics that many models report are written, and their unit; others stand under their own names.
_STAT_WORDS = {"kl": ("KL", " nats per sequence")}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Evaluation:
    """How well a model predicts a split."""

    loss: float  # nats per token; of a model with a KL part the bound
    stats: dict[str, float] = field(default_factory=dict, hash=False)  # what else the model reports, such as its KL
    has_perplexity: bool = True  # whether the loss is the cross-entropy of the tokens
    bits_per_byte: float | None
    num_tokens: int  # that were predicted
    full: bool  # all of the split, not a subset
    seconds: float

    @property
    def perplexity(self) -> float | None:
        """exp(loss). None for a model whose loss is not the cross-entropy of the tokens, such as the bound of a VAE."""
        if not self.has_perplexity:
            return None
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

    @property
    def reconstruction(self) -> float | None:
        """Of a model with a KL part: the rest of the loss, nats per token."""
        return self.stats.get("reconstruction")

    @property
    def kl(self) -> float | None:
        """Of a model with a KL part: nats per sequence."""
        return self.stats.get("kl")

    def __repr__(self) -> str:
        perplexity = "" if self.perplexity is None else f", perplexity={self.perplexity:.2f}"
        bits = "" if self.bits_per_byte is None else f", bits_per_byte={self.bits_per_byte:.4f}"
        part = "" if self.full else ", full=False"
        return f"Evaluation(loss={self.loss:.4f}{perplexity}{bits}, num_tokens={self.num_tokens:,}{part})"

    def _repr_html_(self) -> str:
        return html_table("Evaluation", self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """What there is to show, as names and values."""
        rate = f"  ({self.num_tokens / self.seconds:,.0f} tokens/s)" if self.seconds else ""
        words = {name: _STAT_WORDS.get(name, (name.replace("_", " "), "")) for name in self.stats}
        return [
            ("tokens", f"{self.num_tokens:,}{'' if self.full else ' (a subset)'}"),
            ("loss", f"{self.loss:.4f}"),
            *([] if self.perplexity is None else [("perplexity", f"{self.perplexity:,.2f}")]),
            *((words[name][0], f"{value:.4f}{words[name][1]}") for name, value in self.stats.items()),
            ("bits per byte", "-" if self.bits_per_byte is None else f"{self.bits_per_byte:.4f}"),
            ("time", f"{self.seconds:.2f} s{rate}"),
        ]

    def to_json(self) -> dict[str, Any]:
        """All of it, for JSON; null for what is no number."""
        numbers = {"loss": self.loss, "perplexity": self.perplexity, **self.stats, "bits_per_byte": self.bits_per_byte}
        finite = {
            name: value if value is not None and math.isfinite(value) else None for name, value in numbers.items()
        }
        return {**finite, "num_tokens": self.num_tokens, "full": self.full, "seconds": self.seconds}


@dataclass(frozen=True, kw_only=True)
class _Subset:
    """What a caller passes, with the rules it must keep."""

    batch_size: Count | None
    limit_batches: Steps | None


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

    `which` is "best", "latest" or the name of a checkpoint. All of the split is taken unless `limit_batches` is given.
    For a VAE it is the bound (weight 1 on KL), and the data may be Parquet files, read as in training.
    """
    folder, target = Path(run), find_device(device)
    check_options(_Subset(batch_size=batch_size, limit_batches=limit_batches))
    check_data(data)
    _check_order(run, data)
    model, config = load_model(run, which=which, device=target)
    opened = config.model.for_evaluation(folder, data).open_data(data, split=split)
    _check_tokenizer(folder, which, opened)
    size = batch_size or (config.batch_size if isinstance(config.batch_size, int) else 1)
    dataset = opened.open_dataset(
        split, batch_size=size, seed=config.seed, device=target, vocab_size=config.model.vocab_size
    )
    if dataset is None:
        raise OptionError(f"{data}: there is no split {split!r}: {opened.no_validation} Or take the split 'train'.")
    number = num_val_sequences(limit_batches, total=dataset.num_sequences, batch_size=size)
    begin = time.perf_counter()
    with closing(dataset), _autocast(config.precision if precision == "auto" else precision, target):
        found = mean_loss(
            LossModule(model),
            dataset.validation_batches(num_sequences=number),
            stats=config.model.STATISTICS,
            seed=step_seed(config.seed, 0, 0),
        )
    assert found is not None  # a dataset has at least one batch
    return Evaluation(
        loss=found.loss,
        stats=found.stats,
        has_perplexity=config.model.HAS_PERPLEXITY,
        bits_per_byte=opened.bits_per_byte(found.loss, split),
        num_tokens=found.num_tokens,
        full=number == dataset.num_sequences,
        seconds=time.perf_counter() - begin,
    )


def _check_order(run: str | os.PathLike[str], data: str | os.PathLike[str] | Shards) -> None:
    if not isinstance(data, Shards) and is_shards(run) and is_run(Path(data)):
        raise OptionError(f"{run} holds token shards, and {data} is a run. Pass the run first, then the shards.")


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
