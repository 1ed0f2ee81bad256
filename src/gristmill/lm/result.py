"""TrainResult: what a run came to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.lm.checkpoint import find_checkpoint
from gristmill.lm.meters import Reading
from gristmill.lm.records import Record

__all__ = ["TrainResult", "result_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
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
