"""Evaluation: loss, perplexity and bits per byte of a model on held-out shards."""

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


# Display names and units of common statistics. Others are shown under their own names.
_STAT_WORDS = {"kl": ("KL", " nats per sequence")}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Evaluation:
    """Loss of a model on a split, as `evaluate` returns it.

    Examples:
        >>> result = Evaluation(loss=2.0, bits_per_byte=0.9, num_tokens=5000, full=True, seconds=0.5)
        >>> result
        Evaluation(loss=2.0000, perplexity=7.39, bits_per_byte=0.9000, num_tokens=5,000)
        >>> result.rows()[1]
        ('loss', '2.0000')
        >>> result.to_json()["num_tokens"]
        5000
    """

    loss: float
    """Mean loss in nats per token. For a VAE, the bound: reconstruction plus KL."""

    stats: dict[str, float] = field(default_factory=dict, hash=False)
    """Other statistics that the model reports, such as "kl"."""

    has_perplexity: bool = True
    """Whether the loss is the cross-entropy of the tokens."""

    bits_per_byte: float | None
    """Loss in bits per byte of text, comparable between tokenizers. None if the size of the text is unknown."""

    num_tokens: int
    """Number of predicted tokens."""

    full: bool
    """Whether the whole split was evaluated, not a subset."""

    seconds: float
    """Duration of the evaluation."""

    @property
    def perplexity(self) -> float | None:
        """exp(loss). None if the loss is not the cross-entropy of the tokens, as for a VAE."""
        if not self.has_perplexity:
            return None
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

    @property
    def reconstruction(self) -> float | None:
        """Reconstruction loss of a VAE in nats per token. None for other models."""
        return self.stats.get("reconstruction")

    @property
    def kl(self) -> float | None:
        """KL divergence of a VAE in nats per sequence. None for other models."""
        return self.stats.get("kl")

    def __repr__(self) -> str:
        perplexity = "" if self.perplexity is None else f", perplexity={self.perplexity:.2f}"
        bits = "" if self.bits_per_byte is None else f", bits_per_byte={self.bits_per_byte:.4f}"
        part = "" if self.full else ", full=False"
        return f"Evaluation(loss={self.loss:.4f}{perplexity}{bits}, num_tokens={self.num_tokens:,}{part})"

    def _repr_html_(self) -> str:
        return html_table("Evaluation", self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the printed table as (name, value)."""
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
        """Return all numbers as a dict for JSON. Values that are not finite become None."""
        numbers = {"loss": self.loss, "perplexity": self.perplexity, **self.stats, "bits_per_byte": self.bits_per_byte}
        finite = {
            name: value if value is not None and math.isfinite(value) else None for name, value in numbers.items()
        }
        return {**finite, "num_tokens": self.num_tokens, "full": self.full, "seconds": self.seconds}


@dataclass(frozen=True, kw_only=True)
class _Subset:
    """Options with their allowed values, checked by `check_options`."""

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
    """Return loss, perplexity and bits per byte of a trained model on a split of data.

    For a VAE, the loss is the bound, with weight 1 on the KL divergence.

    Args:
        run: Folder of the run.
        data: Token shards, or their folder, encoded with the tokenizer of the run. For a VAE also Parquet files, read
            as in training.
        split: Split to evaluate: "val" or "train".
        which: Checkpoint: "best", "latest" or a name such as "step-000100".
        batch_size: Sequences per batch. None: as in training.
        limit_batches: Number of batches to evaluate (int) or their share (float). The subset is fixed. None: all.
        device: "auto" (CUDA when available), "cpu", "cuda" or "mps".
        precision: "auto" (as in training), "bf16-mixed", "16-mixed" or "32".

    Raises:
        OptionError: An option is invalid, the device is not available, or the data have no such split.
        CheckpointError: The run or checkpoint does not exist, or the data were encoded with another tokenizer.
        OSError: The data cannot be read.

    Examples:
        ```python
        result = gm.lm.evaluate("run", "shards", split="val")
        print(result.loss, result.perplexity, result.bits_per_byte)
        ```
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
        raise OptionError(f"{data} has no split {split!r}: {opened.no_validation} Or pass split='train'.")
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
        raise OptionError(f"{run} holds token shards, but {data} is a run. Pass the run first, then the shards.")


def _check_tokenizer(run: Path, which: str, data: TrainingData) -> None:
    folder = find_checkpoint(run, which)
    then, now = read_state(folder)["shards"], data.identity
    expected = {**now, "tokenizer_fingerprint": then["tokenizer_fingerprint"]}
    if found := identity_differences(expected, now, run=run, tokenizer=data.tokenizer):
        raise CheckpointError(
            f"{folder} does not match the {data.noun}: {found[0]}. Encode the text with {run / 'tokenizer.json'}."
        )


def _autocast(precision: str, device: torch.device) -> Any:
    dtypes = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32": None}
    if precision not in dtypes:
        raise OptionError(f"precision={precision!r} is not valid. Pass one of 'bf16-mixed', '16-mixed', '32'.")
    dtype = dtypes[precision]
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)
