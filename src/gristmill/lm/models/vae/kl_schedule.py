"""The weight of the KL term as a pure function of the step, so there is no state to save."""

from __future__ import annotations

from math import inf

from gristmill.errors import OptionError

__all__ = ["KL_SHAPES", "kl_weight"]

KL_SHAPES = ("constant", "linear", "cyclical")


def kl_weight(
    step: int,
    *,
    peak: float,
    shape: str = "constant",
    warmup_steps: int = 0,
    total_steps: int,
    num_cycles: int = 4,
    ramp_fraction: float = 0.5,
) -> float:
    """Return the weight of the KL divergence in the loss of step 0, 1, … total_steps - 1.

        constant   always `peak`
        linear     rises linearly from 0 at step 0 to `peak` at step `warmup_steps`, then `peak`
        cyclical   num_cycles times in a run of `total_steps`: rises linearly from 0 to `peak` in the first
                   `ramp_fraction` of the cycle, then `peak` to its end

    At weight 0 a model learns to put as much as possible into its latent; at `peak` it drops what is not worth its KL.
    Steps from `total_steps` on have `peak`.

    >>> [kl_weight(s, peak=1.0, shape="cyclical", total_steps=8, num_cycles=2) for s in range(8)]
    [0.0, 0.5, 1.0, 1.0, 0.0, 0.5, 1.0, 1.0]
    """
    _check(step, peak, shape, warmup_steps, total_steps, num_cycles, ramp_fraction)
    if shape == "linear" and step < warmup_steps:
        return peak * step / warmup_steps
    if shape != "cyclical" or step >= total_steps:
        return peak
    done = step * num_cycles % total_steps / total_steps  # share of the cycle; integers start each at exactly 0
    return peak * done / ramp_fraction if done < ramp_fraction else peak


def _check(
    step: int, peak: float, shape: str, warmup_steps: int, total_steps: int, num_cycles: int, ramp_fraction: float
) -> None:
    if step < 0:
        raise OptionError(f"step must be >= 0, got {step}.")
    if not 0 <= peak < inf:
        raise OptionError(f"peak must be >= 0, got {peak}.")
    if shape not in KL_SHAPES:
        raise OptionError(f"shape={shape!r} is not valid. Pass one of {', '.join(map(repr, KL_SHAPES))}.")
    if warmup_steps < 0:
        raise OptionError(f"warmup_steps must be >= 0, got {warmup_steps}.")
    for name, number in (("total_steps", total_steps), ("num_cycles", num_cycles)):
        if number < 1:
            raise OptionError(f"{name} must be >= 1, got {number}.")
    if not 0 <= ramp_fraction <= 1:
        raise OptionError(f"ramp_fraction must be between 0 and 1, got {ramp_fraction}.")
