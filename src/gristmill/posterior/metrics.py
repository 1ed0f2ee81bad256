"""Metrics: the measurements of the posteriors at one step, and the alarms they cause."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Alarm", "AlarmChange", "PosteriorMetrics"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """An active alarm.

    Attributes:
        kind: "not_finite", "collapse", "few_units", "ignored" or "prior".
        step: Step at which it was raised.
        message: The metrics and the remedies.

    Examples:
        ```python
        for alarm in monitor.alarms:
            print(alarm.kind, alarm.step, alarm.message)
        ```
    """

    kind: str
    step: int
    message: str


@dataclass(frozen=True, slots=True)
class AlarmChange:
    """A change of an alarm at one step: raised or cleared.

    Attributes:
        kind: The kind of alarm, as in `Alarm`.
        change: "raised" or "cleared".
        step: Step of the change.
        message: The metrics and, for a raised alarm, the remedies.

    Examples:
        ```python
        for change in monitor.history[-1].alarms:
            print(change.step, change.change, change.kind)
        ```
    """

    kind: str
    change: str
    step: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PosteriorMetrics:
    """Measurements of the posteriors in the window of one step, in nats per sequence. None: unknown or not finite.

    Attributes:
        step: The step.
        num_samples: Number of posteriors in the window.
        kl: KL divergence of the posteriors from the prior.
        kl_per_dimension: `kl` of each latent dimension; their sum is `kl`.
        active_units: Number of dimensions whose mean has a variance > 0.01.
        active_units_strict: Number of dimensions whose mean has a variance > 0.2.
        mutual_information: Mutual information of latents and sequences; the estimate is capped at
            `mutual_information_limit`.
        mutual_information_limit: ln `num_samples`.
        aggregated_kl: KL minus mutual information: the KL of the mixture of all posteriors from the prior.
        aggregated_kl_floor: Lower bound of `aggregated_kl` that holds for few samples too.
        kl_share: Share of the weighted KL in the loss.
        kl_weight: Weight of the KL in the loss.
        gap_shuffled: Extra nats of reconstruction from the latents of another sequence.
        gap_prior: Extra nats of reconstruction from latents sampled from the prior.
        gap_shuffled_error: Standard error of `gap_shuffled`, widened for few sequences.
        alarms: Alarms raised or cleared at this step.

    Examples:
        ```python
        metrics = monitor.history[-1]
        print(metrics)  # step 100: KL 5.21, MI 4.80 of at most 6.93, 12 of 32 units active
        metrics.scalars()  # {"kl": 5.21, …} for a logger
        json.dumps(metrics.to_record())
        ```
    """

    step: int
    num_samples: int
    kl: float | None
    kl_per_dimension: tuple[float | None, ...]
    active_units: int | None
    active_units_strict: int | None
    mutual_information: float | None
    mutual_information_limit: float
    aggregated_kl: float | None
    aggregated_kl_floor: float | None
    kl_share: float | None
    kl_weight: float | None
    gap_shuffled: float | None
    gap_prior: float | None
    gap_shuffled_error: float | None = None
    alarms: tuple[AlarmChange, ...] = ()

    @property
    def latent_dim(self) -> int:
        """Number of latent dimensions, Z."""
        return len(self.kl_per_dimension)

    def to_record(self) -> dict[str, Any]:
        """Return the metrics as a record for metrics.jsonl."""
        record = {"kind": "posterior", **asdict(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in record.items()}

    def scalars(self) -> Mapping[str, float]:
        """Return the known metrics that are single numbers, by name, for a logger."""
        record = {name: getattr(self, name) for name in _SCALARS}
        return {name: float(value) for name, value in record.items() if value is not None}

    def __str__(self) -> str:
        """Return one line for the terminal."""
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
    """Return the value, or None if it is not finite: JSON has no NaN, and comparisons with NaN are meaningless."""
    return value if math.isfinite(value) else None


def _text(value: float | None, form: str = ".2f") -> str:
    return "unknown" if value is None else format(value, form)
