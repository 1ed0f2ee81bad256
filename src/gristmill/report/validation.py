"""Validation: losses on the fixed subset and on the whole split, which are never compared with each other.

The subset is smaller and has other texts, so its loss may differ from that of the whole split by more than a run gains
in its second half. Curves and the best loss use the subset; the whole split is shown separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gristmill.report.records import Table


@dataclass(frozen=True)
class Validation:
    """One validation: its step, its data and its results."""

    step: int
    full: bool  # on the whole split
    loss: float
    bits_per_byte: float | None
    num_tokens: float | None

    @property
    def words(self) -> str:
        """Description of its data."""
        return "on the whole split" if self.full else "on a fixed subset"


def curve(val: Table) -> Table:
    """Return the validations on the subset, which make a curve; those on the whole split if there are no others."""
    on_subset = val["full"] != 1
    return val.where(on_subset) if on_subset.any() else val


def apart(val: Table) -> Table:
    """Return the validations on the whole split that are not part of the curve."""
    on_whole = val["full"] == 1
    return val.where(on_whole & (not on_whole.all()))


def stretches(val: Table) -> Iterator[Table]:
    """Yield the parts of the curve on the same subset: a resumed run may use a subset of another size."""
    sizes = curve(val)["num_tokens"]
    for size in dict.fromkeys(sizes[np.isfinite(sizes)].tolist()):
        yield curve(val).where(sizes == size)
    if np.isnan(sizes).any():
        yield curve(val).where(np.isnan(sizes))


def best(val: Table) -> Validation | None:
    """Return the lowest loss of the curve, among the validations on the same subset as the last one."""
    found = curve(val)
    found = found.where(np.isfinite(found["loss"]))
    if not len(found):
        return None
    size = found["num_tokens"][-1]
    same = found.where((found["num_tokens"] == size) | np.isnan(size))
    return _at(same, int(same["loss"].argmin()))


def last_full(val: Table) -> Validation | None:
    """Return the last validation on the whole split."""
    chosen = val.where((val["full"] == 1) & np.isfinite(val["loss"]))
    return _at(chosen, -1) if len(chosen) else None


def latest(val: Table) -> Validation | None:
    """Return the last validation; if there are several at that step, the one on the whole split."""
    finite = val.where(np.isfinite(val["loss"]))
    if not len(finite):
        return None
    now = finite.where(finite.steps == finite.steps[-1])
    return last_full(now) or _at(now, -1)


def _at(val: Table, place: int) -> Validation:
    def number(name: str) -> float | None:
        value = float(val[name][place])
        return value if np.isfinite(value) else None

    return Validation(
        step=int(val.steps[place]),
        full=bool(val["full"][place] == 1),
        loss=float(val["loss"][place]),
        bits_per_byte=number("bits_per_byte"),
        num_tokens=number("num_tokens"),
    )
