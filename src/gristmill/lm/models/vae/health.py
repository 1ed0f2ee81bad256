"""Health: a one-line verdict on posterior collapse at the end of a run, for its summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.posterior import Alarm, PosteriorMetrics

__all__ = ["COLLAPSED_KL", "Health", "health_of"]

# Nats per sequence. A latent cannot encode more about its sequence than its KL, and the monitor treats a posterior with
# at least 0.5 nats as recovered.
COLLAPSED_KL = 0.5


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict on the posterior in the summary of a run."""

    verdict: str  # one line, good or bad
    warnings: tuple[str, ...]  # empty if there is no problem

    @property
    def is_good(self) -> bool:
        """Whether there are no warnings."""
        return not self.warnings


def health_of(val_kl: float | None, *, last: PosteriorMetrics | None = None, alarms: Sequence[Alarm] = ()) -> Health:
    """Return the verdict on a posterior, from its KL on the validation split and the last metrics of the monitor.

    val_kl: nats per sequence; None without validation
    last: the last metrics of the monitor; None without a monitor
    alarms: alarms that are still active

    Without a monitor the KL decides: it is an upper bound of the mutual information, so a KL near 0 is a collapse. A
    larger KL may still encode nothing useful, which only the monitor detects.

    >>> health_of(0.02).verdict
    'posterior collapse: the KL on the validation split is 0.02 nats per sequence, so the latents carry no information.'
    >>> health_of(7.3).warnings
    ()
    """
    found = [alarm.message for alarm in alarms]
    if val_kl is not None and val_kl < COLLAPSED_KL and all(alarm.kind != "collapse" for alarm in alarms):
        found.insert(0, _collapse(val_kl))
    if found:
        return Health(found[0], tuple(found))
    return Health(_good(val_kl, last), ())


def _collapse(val_kl: float) -> str:
    return (
        f"posterior collapse: the KL on the validation split is {val_kl:.2f} nats per sequence, so the latents carry "
        f"no information."
    )


def _good(val_kl: float | None, last: PosteriorMetrics | None) -> str:
    if last is not None:
        return f"no alarm: {last}"
    if val_kl is None:
        return "unknown: there was no validation, and the monitor did not run."
    return f"no collapse: the KL on the validation split is {val_kl:.2f} nats per sequence."
