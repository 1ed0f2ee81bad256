"""Alarms: when a metric is bad, when to warn, and what helps.

A single bad window means little: an alarm is raised when its condition holds in two measurements in a row, and cleared
when the opposite holds, with some margin, in two in a row. A measurement without the metric counts neither way. The
last measurement of a run has no successor, so it can raise an alarm by itself.

To add an alarm: a function that judges, a function that writes the message, a line in `KINDS`, and remedies in
remedies.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from gristmill.posterior.metrics import Alarm, AlarmChange, PosteriorMetrics
from gristmill.posterior.remedies import Advice, what_helps

__all__ = ["KINDS", "Alarms"]

NUM_LOOKS = 2  # measurements in a row before an alarm is raised
MIN_SAMPLES = 16  # fewer posteriors are not representative

# Nats. Working text VAEs have one or more; collapsed ones show -0.05 to 0.15 with a hundred samples.
COLLAPSED_INFORMATION, LIVE_INFORMATION = 0.2, 0.5
FEW_UNITS, ENOUGH_UNITS = 0.1, 0.15  # share of the dimensions
IGNORED_GAP, USED_GAP = 0.05, 0.1  # share of the KL
IGNORED_KL = 0.5  # nats; below this there is nothing to ignore
NUM_ERRORS = 2  # standard errors of a gap, measured on one batch, before it counts as small
FAR_KL, NEAR_KL = 0.3, 0.2  # nats per dimension: 0.3 is a variance of 2.6 instead of 1
FAR_KL_LEAST, NEAR_KL_LEAST = 5.0, 3.0  # nats

Verdict = Literal["bad", "good", "between"] | None


@dataclass(slots=True)
class _Switch:
    """State of an alarm, and the number of measurements in a row that contradict it."""

    active: bool = False
    num_looks: int = 0

    def look(self, verdict: Verdict, *, is_last: bool) -> bool:
        """Whether the alarm changes at this measurement."""
        if verdict is None:
            return False
        self.num_looks = self.num_looks + 1 if verdict == ("good" if self.active else "bad") else 0
        needed = 1 if is_last and not self.active else NUM_LOOKS
        if self.num_looks < needed:
            return False
        self.active, self.num_looks = not self.active, 0
        return True


class Alarms:
    """State of all alarms of a run."""

    def __init__(self, advice: Advice = "general") -> None:
        """`advice`: remedies in general terms, or as options of `gm.lm.train`."""
        self._advice = advice
        self._switches = {kind: _Switch() for kind in KINDS}
        self._active: dict[str, Alarm] = {}
        self._kl_weight: float | None = None  # at the last measurement

    @property
    def active(self) -> tuple[Alarm, ...]:
        """The active alarms, in the order in which they were raised."""
        return tuple(self._active.values())

    def look(self, metrics: PosteriorMetrics, *, is_last: bool = False) -> tuple[AlarmChange, ...]:
        """Return the alarms that these metrics raise or clear. A last measurement can raise an alarm by itself."""
        view = _View(
            metrics,
            collapsed=self._switches["collapse"].active,
            is_steady=self._kl_weight in (None, metrics.kl_weight),
        )
        self._kl_weight = metrics.kl_weight
        verdicts = {kind: _judged(judge, view) for kind, (judge, _, _) in KINDS.items()}
        return tuple(
            self._changed(kind, metrics)
            for kind, verdict in verdicts.items()
            if self._switches[kind].look(verdict, is_last=is_last and _is_sure(kind, metrics))
        )

    def _changed(self, kind: str, metrics: PosteriorMetrics) -> AlarmChange:
        _, tell, tell_cleared = KINDS[kind]
        if self._switches[kind].active:
            message = f"{tell(metrics)} Try, in this order: {what_helps(kind, metrics, self._advice)}"
            self._active[kind] = alarm = Alarm(kind, metrics.step, message)
            return AlarmChange(kind, "raised", metrics.step, alarm.message)
        del self._active[kind]
        return AlarmChange(kind, "cleared", metrics.step, tell_cleared(metrics))

    # State

    def state(self) -> dict[str, Any]:
        """Return the whole state, for JSON."""
        return {
            "switches": {kind: [switch.active, switch.num_looks] for kind, switch in self._switches.items()},
            "active": [[alarm.kind, alarm.step, alarm.message] for alarm in self.active],
            "kl_weight": self._kl_weight,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned. Kinds of alarms that did not exist then are off."""
        for kind, switch in self._switches.items():
            active, num_looks = state["switches"].get(kind, (False, 0))
            switch.active, switch.num_looks = bool(active), int(num_looks)
        self._active = {kind: Alarm(kind, step, message) for kind, step, message in state["active"] if kind in KINDS}
        self._kl_weight = state["kl_weight"]


# Judgement


class _View(NamedTuple):
    metrics: PosteriorMetrics
    collapsed: bool
    # While the weight of the KL rises, the posterior still moves, and its distance from the prior means nothing.
    is_steady: bool


def _is_sure(kind: str, metrics: PosteriorMetrics) -> bool:
    """Whether one measurement may raise this alarm. The gap of a single sequence has no error, and proves nothing."""
    return kind != "ignored" or metrics.gap_shuffled_error is not None


def _judged(judge: Callable[[_View], Verdict], view: _View) -> Verdict:
    return judge(view) if view.metrics.num_samples >= MIN_SAMPLES else None


def _verdict(*, bad: bool, good: bool) -> Verdict:
    return "bad" if bad else "good" if good else "between"


def _judge_not_finite(view: _View) -> Verdict:
    return "bad" if view.metrics.kl is None else "good"


def _judge_collapse(view: _View) -> Verdict:
    metrics = view.metrics
    information, units, strict = metrics.mutual_information, metrics.active_units, metrics.active_units_strict
    if information is None or units is None or strict is None:
        return None
    few = max(1, FEW_UNITS * metrics.latent_dim)
    # Collapse uses the strict threshold, recovery the other: noise may exceed 0.01 for a while, but not 0.2.
    return _verdict(
        bad=information < COLLAPSED_INFORMATION and strict < few,
        good=information > LIVE_INFORMATION and units >= few,
    )


def _judge_few_units(view: _View) -> Verdict:
    units, latent_dim = view.metrics.active_units, view.metrics.latent_dim
    if units is None:
        return None
    dead = view.collapsed or _judge_collapse(view) == "bad"  # which is a separate alarm
    return _verdict(bad=units < FEW_UNITS * latent_dim and not dead, good=units >= ENOUGH_UNITS * latent_dim)


def _judge_ignored(view: _View) -> Verdict:
    gap, kl = view.metrics.gap_shuffled, view.metrics.kl
    if gap is None or kl is None:
        return None
    if not view.is_steady:
        return "between"
    surely_below = gap + NUM_ERRORS * (view.metrics.gap_shuffled_error or 0.0)
    return _verdict(
        bad=kl > IGNORED_KL and surely_below < IGNORED_GAP * kl, good=gap > USED_GAP * kl or kl < IGNORED_KL / 2
    )


def _judge_prior(view: _View) -> Verdict:
    distance, latent_dim = view.metrics.aggregated_kl_floor, view.metrics.latent_dim
    if distance is None:
        return None
    if not view.is_steady:
        return "between"
    return _verdict(
        bad=distance > max(FAR_KL_LEAST, FAR_KL * latent_dim),
        good=distance < max(NEAR_KL_LEAST, NEAR_KL * latent_dim),
    )


# Messages


def _tell_not_finite(metrics: PosteriorMetrics) -> str:
    return (
        f"the posterior is not finite: mu or logvar of the last {metrics.num_samples} sequences contain NaN or "
        f"infinity, so its metrics are unknown."
    )


def _tell_collapse(metrics: PosteriorMetrics) -> str:
    return (
        f"posterior collapse: the latents carry {_information(metrics)}, and {_units(metrics)}; the decoder does not "
        f"use them."
    )


def _tell_few_units(metrics: PosteriorMetrics) -> str:
    return f"few active units: only {_units(metrics)}; the others carry no information."


def _tell_ignored(metrics: PosteriorMetrics) -> str:
    return (
        f"the decoder ignores the latents: latents of another sequence cost only {metrics.gap_shuffled or 0:.2f} nats "
        f"more, although their KL is {metrics.kl or 0:.2f} nats."
    )


def _tell_prior(metrics: PosteriorMetrics) -> str:
    return (
        f"the posteriors are far from the prior: their mixture by at least {metrics.aggregated_kl_floor or 0:.1f} nats "
        f"in {metrics.latent_dim} dimensions, so samples from the prior will be poor."
    )


def _cleared(words: str) -> Callable[[PosteriorMetrics], str]:
    def tell(metrics: PosteriorMetrics) -> str:
        return f"{words}: the latents carry {_information(metrics)}, and {_units(metrics)}."

    return tell


def _information(metrics: PosteriorMetrics) -> str:
    information, limit = metrics.mutual_information or 0.0, metrics.mutual_information_limit
    return f"{information:.2f} nats about a sequence (mutual information; at most {limit:.1f} can be measured)"


def _units(metrics: PosteriorMetrics) -> str:
    return f"{metrics.active_units or 0} of {metrics.latent_dim} units are active"


Tell = Callable[[PosteriorMetrics], str]
KINDS: dict[str, tuple[Callable[[_View], Verdict], Tell, Tell]] = {
    "not_finite": (_judge_not_finite, _tell_not_finite, lambda metrics: "the posterior is finite again."),
    "collapse": (_judge_collapse, _tell_collapse, _cleared("the posterior has recovered from its collapse")),
    "few_units": (_judge_few_units, _tell_few_units, _cleared("enough units are active again")),
    "ignored": (_judge_ignored, _tell_ignored, _cleared("the decoder uses the latents again")),
    "prior": (_judge_prior, _tell_prior, _cleared("the posteriors are near the prior again")),
}
