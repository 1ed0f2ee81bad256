"""Health: whether the posterior of a VAE is alive at the end of a run, in one line, for the summary of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.posterior import Alarm, PosteriorMetrics

__all__ = ["COLLAPSED_KL", "Health", "health_of"]

# Nats per sequence. A latent cannot say more about its sequence than its KL, and from 0.5 nats on the monitor takes a
# posterior for recovered.
COLLAPSED_KL = 0.5


@dataclass(frozen=True, slots=True)
class Health:
    """What the summary of a run reports about the posterior."""

    verdict: str  # one line, whether good or bad
    warnings: tuple[str, ...]  # empty where all is well

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to warn of."""
        return not self.warnings


def health_of(val_kl: float | None, *, last: PosteriorMetrics | None = None, alarms: Sequence[Alarm] = ()) -> Health:
    """Return the verdict on a posterior: from its KL on the validation split and, with a monitor, its last look.

    val_kl: nats per sequence; None where there was no validation
    last: the last look of the monitor; None without a monitor
    alarms: those that are still on

    Without a monitor the KL decides: it bounds the mutual information from above, so that a KL near 0 is a collapse. A
    greater KL may still be spent on nothing, which only the monitor detects.

    >>> health_of(0.02).verdict
    'posterior collapse: the KL on the validation split is 0.02 nats per sequence, and a latent cannot hold more.'
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
        f"posterior collapse: the KL on the validation split is {val_kl:.2f} nats per sequence, and a latent cannot "
        f"hold more."
    )


def _good(val_kl: float | None, last: PosteriorMetrics | None) -> str:
    if last is not None:
        return f"no alarm: {last}"
    if val_kl is None:
        return "unknown: there was neither a validation nor a look of the monitor."
    return f"no collapse: the KL on the validation split is {val_kl:.2f} nats per sequence."
