"""TrainResult: what a run came to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.lm.training.checkpoint import find_checkpoint
from gristmill.lm.training.meters import Reading
from gristmill.lm.training.records import Record
from gristmill.notebook import html_table

__all__ = ["TrainResult", "result_of"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainResult:
    """What a run came to."""

    folder: Path
    checkpoint: Path  # the last one
    num_steps: int
    num_tokens: int  # that were trained on
    num_parameters: int
    loss: float | None  # of the last steps; None where a finished run had nothing left to do
    val_loss: float | None  # on the whole validation split
    val_kl: float | None  # of a VAE: nats a sequence, likewise
    bits_per_byte: float | None
    tokens_per_second: float | None  # without padding
    padding: float | None  # share of what was computed on that is no token
    data_wait: float | None  # share of the time
    mfu: float | None  # of the peak on the data sheet
    mfu_matmul: float | None  # of a matrix product measured here
    memory_bytes: int | None
    seconds: float

    def __repr__(self) -> str:
        loss = self.val_loss if self.val_loss is not None else self.loss
        kind = "loss" if self.val_loss is None else "val_loss"
        shown = "" if loss is None else f", {kind}={loss:.4f}"
        return f"TrainResult({str(self.folder)!r}, num_steps={self.num_steps:,}, num_tokens={self.num_tokens:,}{shown})"

    def _repr_html_(self) -> str:
        return html_table(f"TrainResult: {self.folder}", self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """What there is to show, as names and values."""
        return [
            ("steps", f"{self.num_steps:,}"),
            ("tokens", f"{self.num_tokens:,}"),
            ("parameters", f"{self.num_parameters:,}"),
            ("training loss", _number(self.loss)),
            ("validation loss", _number(self.val_loss)),
            *([("validation KL", f"{self.val_kl:.4f} nats per sequence")] if self.val_kl is not None else []),
            ("bits per byte", _number(self.bits_per_byte)),
            ("tokens/s", "-" if self.tokens_per_second is None else f"{self.tokens_per_second:,.0f}"),
            *([("padding", f"{self.padding:.1%}")] if self.padding else []),
            ("waiting for data", "-" if self.data_wait is None else f"{self.data_wait:.1%}"),
            ("MFU", self._shares()),
            ("memory", "-" if self.memory_bytes is None else f"{self.memory_bytes / 1e9:,.3g} GB"),
            ("time", f"{self.seconds:,.1f} s"),
            ("saved to", str(self.checkpoint)),
        ]

    def _shares(self) -> str:
        kinds = ((self.mfu, "the device's peak"), (self.mfu_matmul, "a matrix product measured here"))
        return ", ".join(f"{share:.0%} of {what}" for share, what in kinds if share is not None) or "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def result_of(
    folder: Path, *, readings: Sequence[Reading], full_validations: Sequence[Record], **numbers: Any
) -> TrainResult:
    """The result of a run that has these readings and validations behind it; `numbers` are fields of their own."""
    val = full_validations[-1] if full_validations else {}
    readings = readings[1:] or readings  # the first holds compilation and cold caches
    last = readings[-1] if readings else None
    return TrainResult(
        folder=folder,
        checkpoint=find_checkpoint(folder),
        loss=last.loss if last else None,
        val_loss=val.get("loss"),
        val_kl=val.get("kl"),
        bits_per_byte=val.get("bits_per_byte"),
        tokens_per_second=statistics.median(r.tokens_per_second for r in readings) if last else None,
        padding=statistics.fmean(r.padding for r in readings) if last else None,
        data_wait=statistics.median(r.data_wait for r in readings) if last else None,
        mfu=statistics.median(r.mfu for r in readings if r.mfu is not None) if last and last.mfu else None,
        mfu_matmul=statistics.median(r.mfu_matmul or 0.0 for r in readings) if last else None,
        **numbers,
    )
