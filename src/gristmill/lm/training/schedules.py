"""The learning rate as a pure function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

from math import cos, pi

from gristmill.errors import OptionError

__all__ = ["SHAPES", "learning_rate", "step_seed"]

SHAPES = ("cosine", "wsd", "constant")


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
    """The learning rate of step 0, 1, … total_steps - 1.

    It rises evenly over the first `warmup_steps` steps: peak / warmup_steps at step 0, so that no step is wasted on
    zero, and `peak` at the last of them (at step 0 without warm-up). Then, by `shape`,

        cosine     it falls along half a cosine to final_fraction * peak
        wsd        it stays at `peak` and falls evenly to final_fraction * peak over the last decay_fraction of all
                   steps (warm-up, stable, decay)
        constant   it stays at `peak`

    The last step, total_steps - 1, has exactly the final value, and so have the steps after it. With peak=1 it is the
    scale that `Optimizers.set_learning_rate` takes.

    >>> [learning_rate(s, peak=1.0, warmup_steps=2, total_steps=6, final_fraction=0.0) for s in (0, 1, 3, 5)]
    [0.5, 1.0, 0.5, 0.0]
    """
    _check(step, warmup_steps, total_steps, shape, final_fraction, decay_fraction)
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    peak_step = max(warmup_steps - 1, 0)
    if shape == "wsd":
        peak_step = max(peak_step, total_steps - 1 - round(decay_fraction * total_steps))
    if shape == "constant" or step <= peak_step:
        return peak
    if step >= total_steps - 1:
        return peak * final_fraction
    done = (step - peak_step) / (total_steps - 1 - peak_step)
    remaining = 1 - done if shape == "wsd" else (1 + cos(pi * done)) / 2
    return peak * (final_fraction + (1 - final_fraction) * remaining)


def _check(
    step: int, warmup_steps: int, total_steps: int, shape: str, final_fraction: float, decay_fraction: float
) -> None:
    if step < 0:
        raise OptionError(f"step={step} is negative. Steps are counted from 0.")
    if total_steps < 1:
        raise OptionError(f"total_steps={total_steps} is too small. Pass total_steps >= 1.")
    if not 0 <= warmup_steps <= total_steps:
        raise OptionError(
            f"warmup_steps={warmup_steps} does not lie in the {total_steps:,} steps of the run. "
            f"Pass 0 <= warmup_steps <= {total_steps}."
        )
    if shape not in SHAPES:
        raise OptionError(f"shape={shape!r} is not known. Pass one of {', '.join(map(repr, SHAPES))}.")
    for name, fraction in (("final_fraction", final_fraction), ("decay_fraction", decay_fraction)):
        if not 0 <= fraction <= 1:
            raise OptionError(f"{name}={fraction} is not a fraction. Pass 0 <= {name} <= 1.")


def step_seed(seed: int, step: int, rank: int) -> int:
    """A seed for the random numbers of a step, unlike that of any other step, rank or run (splitmix64)."""
    mixed = (seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + rank * 0x8CB92BA72F3D8DD7) & (2**64 - 1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & (2**64 - 1)
    return (mixed ^ (mixed >> 31)) >> 1
