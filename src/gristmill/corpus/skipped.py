"""Inputs that could not be read and were left out, as on_error="skip" asks: said once, at the end."""

from __future__ import annotations

from collections.abc import Mapping

from gristmill.errors import SkippedInputWarning, warn_user

NUM_SHOWN = 5


def warn_of_skipped(reasons: Mapping[int, str], num_inputs: int) -> None:
    """Say why inputs were left out, if any were; `reasons` go by their index among all inputs."""
    if not reasons:
        return
    shown = "; ".join(reasons[index] for index in sorted(reasons)[:NUM_SHOWN])
    more = len(reasons) - NUM_SHOWN
    warn_user(
        f"{len(reasons):,} of {num_inputs:,} inputs could not be read and were skipped: {shown}"
        + (f"; and {more:,} more" if more > 0 else ""),
        SkippedInputWarning,
    )
