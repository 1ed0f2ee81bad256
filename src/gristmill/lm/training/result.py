"""TrainResult: the result of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gristmill.lm.training.checkpoint import find_checkpoint
from gristmill.lm.training.meters import Reading
from gristmill.lm.training.records import Record
from gristmill.notebook import html_table
from gristmill.report import figures

__all__ = ["TrainResult", "result_of"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainResult:
    """Result of `train`: losses, speed and checkpoint of a run.

    Attributes:
        folder: The folder of the run.
        checkpoint: The last checkpoint.
        num_steps: Number of steps of the run.
        num_tokens: Number of tokens trained on.
        num_parameters: Number of parameters of the model.
        loss: Training loss of the last steps. None if the run was already finished.
        val_loss: Loss on the whole validation split. None without validation data.
        val_stats: Other statistics of the model on the whole validation split.
        perplexity: exp(val_loss) if the loss is the cross-entropy in nats per token, otherwise None.
        bits_per_byte: Validation loss in bits per byte of text. None if the number of bytes is unknown.
        tokens_per_second: Median speed, not counting padding.
        padding: Fraction of the computed positions that are padding.
        data_wait: Fraction of the time in which the device waited for a batch.
        mfu: Model FLOPs utilization, relative to the data-sheet peak of the device.
        mfu_matmul: Model FLOPs utilization, relative to a matrix product measured on the device.
        mfu_relative_to: Precision of the peak and of the product that the MFU is relative to: that of the run, or
            "float8" if any products use 8-bit floats.
        memory_bytes: Peak memory of the run.
        seconds: Duration of the run.
        warnings: Problems to know about before using the model.

    Examples:
        ```python
        result = gm.lm.train("shards/", out="run/", preset="quickstart")
        print(result.val_loss, result.tokens_per_second, result.checkpoint)
        ```
    """

    folder: Path
    checkpoint: Path
    num_steps: int
    num_tokens: int
    num_parameters: int
    loss: float | None
    val_loss: float | None
    val_stats: dict[str, float] = field(default_factory=dict)
    perplexity: float | None = None
    bits_per_byte: float | None
    tokens_per_second: float | None
    padding: float | None
    data_wait: float | None
    mfu: float | None
    mfu_matmul: float | None
    memory_bytes: int | None
    seconds: float
    mfu_relative_to: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def val_kl(self) -> float | None:
        """KL to the prior on the whole validation split in nats per sequence, for a VAE. Otherwise None."""
        return self.val_stats.get("kl")

    def __repr__(self) -> str:
        loss = self.val_loss if self.val_loss is not None else self.loss
        kind = "loss" if self.val_loss is None else "val_loss"
        shown = "" if loss is None else f", {kind}={loss:.4f}"
        return f"TrainResult({str(self.folder)!r}, num_steps={self.num_steps:,}, num_tokens={self.num_tokens:,}{shown})"

    def _repr_html_(self) -> str:
        return html_table(f"TrainResult: {self.folder}", self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """Return the result as (name, value) rows of text, as the command line shows it.

        Examples:
            ```python
            for name, value in result.rows():
                print(f"{name:20} {value}")
            ```
        """
        optional = {
            "perplexity": None if self.perplexity is None else f"{self.perplexity:,.4g}",
            **{f"validation {_label(name)}": f"{value:.4f}" for name, value in self.val_stats.items()},
        }
        speed = {
            "padding": f"{self.padding:.1%}" if self.padding else None,
            "waiting for data": "-" if self.data_wait is None else f"{self.data_wait:.1%}",
            "MFU": self._shares(),
        }
        return [
            ("steps", f"{self.num_steps:,}"),
            ("tokens", f"{self.num_tokens:,}"),
            ("parameters", f"{self.num_parameters:,}"),
            ("training loss", _number(self.loss)),
            ("validation loss", _number(self.val_loss)),
            *_known(optional),
            ("bits per byte", _number(self.bits_per_byte)),
            ("tokens/s", "-" if self.tokens_per_second is None else f"{self.tokens_per_second:,.0f}"),
            *_known(speed),
            ("memory", "-" if self.memory_bytes is None else figures.size(self.memory_bytes)),
            ("time", figures.duration(self.seconds)),
            ("saved to", str(self.checkpoint)),
            *(("warning", message) for message in self.warnings),
        ]

    def _shares(self) -> str | None:
        small = "8-bit " if self.mfu_relative_to == "float8" else ""
        kinds = (
            (self.mfu, f"the device's {small}peak"),
            (self.mfu_matmul, f"a {small or 'matrix '}product measured here"),
        )
        return ", ".join(f"{share:.0%} of {what}" for share, what in kinds if share is not None) or None


def _label(name: str) -> str:
    return name.upper() if len(name) == 2 else name.replace("_", " ")  # two letters are initials: KL


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _known(rows: dict[str, str | None]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in rows.items() if value is not None]


# Fields of a validation record that are not statistics of the model.
VAL_FIELDS = frozenset({"kind", "step", "loss", "bits_per_byte", "num_tokens", "full", "seconds"})


def result_of(
    folder: Path,
    *,
    readings: Sequence[Reading],
    full_validations: Sequence[Record],
    has_perplexity: bool,
    **numbers: Any,
) -> TrainResult:
    """Return the result of a run with these readings and validations. `numbers` are further fields of the result.

    has_perplexity: whether exp(loss) is the perplexity per token.
    """
    val = full_validations[-1] if full_validations else {}
    stats = {name: value for name, value in val.items() if name not in VAL_FIELDS and isinstance(value, int | float)}
    readings = readings[1:] or readings  # the first includes compilation and cold caches
    last = readings[-1] if readings else None
    return TrainResult(
        folder=folder,
        checkpoint=find_checkpoint(folder),
        loss=last.loss if last else None,
        val_loss=val.get("loss"),
        val_stats=stats,
        perplexity=_perplexity(val.get("loss")) if has_perplexity else None,
        bits_per_byte=val.get("bits_per_byte"),
        tokens_per_second=statistics.median(r.tokens_per_second for r in readings) if last else None,
        padding=statistics.fmean(r.padding for r in readings) if last else None,
        data_wait=statistics.median(r.data_wait for r in readings) if last else None,
        mfu=_median(r.mfu for r in readings),
        mfu_matmul=_median(r.mfu_matmul for r in readings),
        **numbers,
    )


def _median(shares: Iterable[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return statistics.median(known) if known else None


def _perplexity(loss: float | None) -> float | None:
    if loss is None or not math.isfinite(loss):
        return None
    return math.exp(loss) if loss < 700 else math.inf
