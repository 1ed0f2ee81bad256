"""The learning rate as a pure function of the step, so there is no state to save."""

from __future__ import annotations

from math import cos, inf, pi

from gristmill.errors import OptionError
from gristmill.lm.registry import accepted_options
from gristmill.lm.training.registries import SCHEDULES, register_schedule

__all__ = ["SCHEDULES", "check_schedule", "learning_rate", "register_schedule", "step_seed"]


def learning_rate(
    step: int,
    *,
    peak: float,
    warmup_steps: int,
    total_steps: int,
    shape: str = "cosine",
    final_fraction: float = 0.1,
    decay_fraction: float = 0.2,
) -> float:
    """Return the learning rate of step 0, 1, … total_steps - 1.

    It rises linearly over the first `warmup_steps` steps, from peak / warmup_steps at step 0 (not 0, which would waste
    a step) to `peak` at the last of them. Without warm-up, it is `peak` at step 0. The rest depends on `shape`:

        cosine     falls along half a cosine to final_fraction * peak
        wsd        stays at `peak` and falls linearly to final_fraction * peak over the last decay_fraction of all
                   steps (warm-up, stable, decay)
        constant   stays at `peak`

    Step total_steps - 1 and all later steps have exactly the final value. For a registered schedule, the result is
    `peak` times the value of its function. With peak=1, the result is the scale for `Optimizers.set_learning_rate`.

    >>> [learning_rate(s, peak=1.0, warmup_steps=2, total_steps=6, final_fraction=0.0) for s in (0, 1, 3, 5)]
    [0.5, 1.0, 0.5, 0.0]
    """
    _check(step, warmup_steps, total_steps, shape, final_fraction, decay_fraction)
    options = {
        "total_steps": total_steps,
        "warmup_steps": warmup_steps,
        "final_fraction": final_fraction,
        "decay_fraction": decay_fraction,
    }
    function = SCHEDULES[shape]
    scale = function(step, **accepted_options(function, options))
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 <= scale < inf:
        raise OptionError(f"schedule {shape!r} returned {scale!r} for step={step}. Return a number >= 0.")
    return peak * scale


def cosine(step: int, *, total_steps: int, warmup_steps: int, final_fraction: float) -> float:
    """Return the scale of a step: warm-up, then half a cosine from 1 to `final_fraction`."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    done = _decayed(step, max(warmup_steps - 1, 0), total_steps)
    return _between(final_fraction, (1 + cos(pi * done)) / 2) if done < 1 else final_fraction


def wsd(step: int, *, total_steps: int, warmup_steps: int, final_fraction: float, decay_fraction: float) -> float:
    """Return the scale of a step: warm-up, then 1, then linear to `final_fraction` in the last `decay_fraction`."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    peak_step = max(warmup_steps - 1, 0, total_steps - 1 - round(decay_fraction * total_steps))
    done = _decayed(step, peak_step, total_steps)
    return _between(final_fraction, 1 - done) if done < 1 else final_fraction


def constant(step: int, *, warmup_steps: int) -> float:
    """Return the scale of a step: warm-up, then 1."""
    return (step + 1) / warmup_steps if step < warmup_steps else 1.0


def _decayed(step: int, peak_step: int, total_steps: int) -> float:
    """Return the progress of the decay: 0 up to `peak_step`, 1 at the last step of the run."""
    if step <= peak_step:
        return 0.0
    return 1.0 if step >= total_steps - 1 else (step - peak_step) / (total_steps - 1 - peak_step)


def _between(final_fraction: float, remaining: float) -> float:
    return final_fraction + (1 - final_fraction) * remaining if remaining < 1 else 1.0


def check_schedule(warmup_steps: int | float, total_steps: int) -> None:
    """Raise `OptionError` if the warm-up is longer than the run. A float is a fraction of the run and always fits."""
    if total_steps < 1:
        raise OptionError(f"total_steps must be >= 1, got {total_steps}.")
    if isinstance(warmup_steps, float) and 0 <= warmup_steps <= 1:
        return
    if warmup_steps < 0:
        raise OptionError(f"warmup_steps must be >= 0, got {warmup_steps}.")
    if warmup_steps > total_steps:
        raise OptionError(
            f"warmup_steps={warmup_steps} is more than the {total_steps:,} steps of the run. Pass "
            f"warmup_steps=0.02, a fraction of the run, or warmup_steps <= {total_steps}, or train for more steps."
        )


def _check(
    step: int, warmup_steps: int, total_steps: int, shape: str, final_fraction: float, decay_fraction: float
) -> None:
    if step < 0:
        raise OptionError(f"step must be >= 0, got {step}.")
    check_schedule(warmup_steps, total_steps)
    SCHEDULES.check(shape, "shape")
    for name, fraction in (("final_fraction", final_fraction), ("decay_fraction", decay_fraction)):
        if not 0 <= fraction <= 1:
            raise OptionError(f"{name} must be between 0 and 1, got {fraction}.")


def step_seed(seed: int, step: int, rank: int) -> int:
    """Return a seed for the random numbers of a step, different for each seed, step and rank (splitmix64)."""
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + rank * 0x8CB92BA72F3D8DD7) & (2**64 - 1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & (2**64 - 1)
    return (mixed ^ (mixed >> 31)) >> 1
