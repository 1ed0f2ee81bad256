"""Metrics: what is known about the posteriors at one step, and the alarms that follow from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Alarm", "AlarmChange", "PosteriorMetrics"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that is wrong now."""

    kind: str  # "collapse", "few_units", "ignored" or "prior"
    step: int  # at which it was raised
    message: str  # the figures, and what helps


@dataclass(frozen=True, slots=True)
class AlarmChange:
    """An alarm that was raised or cleared."""

    kind: str
    change: str  # "raised" or "cleared"
    step: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PosteriorMetrics:
    """The figures of one step, of the posteriors in its window, in nats per sequence. None: unknown, or not finite."""

    step: int
    num_samples: int  # posteriors in the window
    kl: float | None
    kl_per_dimension: tuple[float | None, ...]
    active_units: int | None  # dimensions whose mean has a variance over 0.01
    active_units_strict: int | None  # over 0.2
    mutual_information: float | None  # capped at:
    mutual_information_limit: float  # ln num_samples
    aggregated_kl: float | None  # KL - mutual information: of the mixture of all posteriors, against the prior
    aggregated_kl_floor: float | None  # at least this much of it is sure, however few the samples are
    kl_share: float | None  # of the loss, the KL weighted
    kl_weight: float | None
    gap_shuffled: float | None  # extra nats of reconstruction from another sequence's latents
    gap_prior: float | None  # from the prior's
    gap_shuffled_error: float | None = None  # standard error of the first, widened where sequences are few
    alarms: tuple[AlarmChange, ...] = ()  # raised or cleared here

    @property
    def latent_dim(self) -> int:
        """Z."""
        return len(self.kl_per_dimension)

    def to_record(self) -> dict[str, Any]:
        """The figures as a record for metrics.jsonl."""
        record = {"kind": "posterior", **asdict(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in record.items()}

    def scalars(self) -> Mapping[str, float]:
        """What is known and is one number, by name: for a logger."""
        record = {name: getattr(self, name) for name in _SCALARS}
        return {name: float(value) for name, value in record.items() if value is not None}

    def __str__(self) -> str:
        """One line for the terminal."""
        units = f"{_text(self.active_units, 'd')} of {self.latent_dim} units active"
        information = f"MI {_text(self.mutual_information)} of at most {self.mutual_information_limit:.2f}"
        parts = [f"step {self.step:,}: KL {_text(self.kl)}", information, units]
        if self.kl_share is not None:
            parts.append(f"KL share {self.kl_share:.1%}")
        if self.gap_shuffled is not None:
            parts.append(f"gap {self.gap_shuffled:.2f} shuffled, {_text(self.gap_prior)} prior")
        return ", ".join(parts)


_SCALARS = (
    "kl",
    "active_units",
    "active_units_strict",
    "mutual_information",
    "aggregated_kl",
    "aggregated_kl_floor",
    "kl_share",
    "gap_shuffled",
    "gap_prior",
)


def known(value: float) -> float | None:
    """The value, None if it is not finite: JSON has no NaN, and no comparison with one says anything."""
    return value if math.isfinite(value) else None


def _text(value: float | None, form: str = ".2f") -> str:
    return "unknown" if value is None else format(value, form)
