"""Run columns: the records of one kind as growing columns, and their reduction to buckets that a page can draw.

A bucket holds a power of two of consecutive records: their last step, and the mean, lowest and highest value of each
metric, so no spike is lost. The page merges pairs of buckets when there are too many, as the server would.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.report.records import Column, Table

__all__ = ["MAX_BUCKETS", "PLACES", "Columns"]

MAX_BUCKETS = 2_048
MAX_COLUMNS = 80  # damaged records may have any number of names
MAX_NAME = 80
PLACES = ("step", "tokens", "seconds")  # horizontal axes: a bucket has the last value instead of the mean
_SKIPPED = frozenset({"kind", "step"})
_PLAIN = {int, float, bool, type(None)}


class Columns:
    """Records of one kind, ordered by step."""

    def __init__(self) -> None:
        self.count = 0
        self._data: dict[str, Column] = {"step": np.empty(64)}

    def extend(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Append records. Returns False if the steps went back, so that all records had to be sorted again."""
        first, end = self.count, self.count + len(records)
        new = {"step": _steps(records)}
        for name in set().union(*records) - _SKIPPED:
            if len(self._data) + len(new) > MAX_COLUMNS and name not in self._data:
                continue
            numbers = _numbers(_values(records, name))
            if name in self._data or (numbers is not None and _is_shown(name)):
                new[name] = np.full(len(records), math.nan) if numbers is None else numbers
        self._reserve(end, new)
        for name, column in self._data.items():
            column[first:end] = new.get(name, math.nan)
        self.count = end
        steps = self._data["step"][max(0, first - 1) : end]
        if bool((steps[1:] >= steps[:-1]).all()):
            return True
        order = np.argsort(self._data["step"][:end], kind="stable")
        for column in self._data.values():
            column[:end] = column[:end][order]
        return False

    def _reserve(self, end: int, names: Iterable[str]) -> None:
        capacity = len(self._data["step"])
        if end > capacity:
            capacity = max(end, 2 * capacity)
            for name, column in self._data.items():
                self._data[name] = np.concatenate([column, np.full(capacity - len(column), math.nan)])
        for name in names:
            if name not in self._data:
                self._data[name] = np.full(capacity, math.nan)

    def table(self) -> Table:
        """Return the records as the report reads them."""
        columns = {name: column[: self.count] for name, column in self._data.items()}
        return Table(columns.pop("step"), columns)

    def last(self, name: str) -> float | None:
        """Return the last finite number of a column; None if it has none."""
        column = self._data[name][: self.count] if name in self._data else np.empty(0)
        recent = column[-64:]  # almost always enough
        finite = recent[np.isfinite(recent)]
        if not len(finite):
            finite = column[np.isfinite(column)]
        return float(finite[-1]) if len(finite) else None

    def rows(self, first: int) -> dict[str, list[float]]:
        """Return the records from number `first` on, exactly."""
        return {name: column[first : self.count].tolist() for name, column in self._data.items()}

    def buckets(self, first: int = 0, end: int | None = None) -> dict[str, Any]:
        """Return the records as at most `MAX_BUCKETS` buckets, encoded for the page.

        Numbers are little-endian floats in base64: 64-bit places, 32-bit metrics. NaN: nothing known.
        """
        end = self.count if end is None else end
        count = max(0, end - first)
        size = 1
        while count > size * MAX_BUCKETS:
            size *= 2
        starts = np.arange(first, end, size)
        columns: dict[str, dict[str, str]] = {}
        for name, column in self._data.items():
            if name in PLACES:
                columns[name] = {"mean": _encoded(column[np.minimum(starts + size, end) - 1], np.float64)}
            else:
                columns[name] = _reduced(column[first:end], starts - first, size)
        return {"count": count, "size": size, "columns": columns}

    def between(self, low: float, high: float) -> tuple[int, int]:
        """Return the numbers of the first record from step `low` on, and of the first after step `high`."""
        steps = self._data["step"][: self.count]
        return int(np.searchsorted(steps, low, "left")), int(np.searchsorted(steps, high, "right"))


def _reduced(column: Column, starts: NDArray[np.int64], size: int) -> dict[str, str]:
    finite = np.isfinite(column)
    known = np.where(finite, column, math.nan)
    if size == 1 or not len(starts):
        return {"mean": _encoded(known, np.float32)}
    numbers = np.add.reduceat(finite, starts, dtype=np.int64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.add.reduceat(np.where(finite, column, 0.0), starts) / np.where(numbers, numbers, math.nan)
    low, high = np.fmin.reduceat(known, starts), np.fmax.reduceat(known, starts)
    return {name: _encoded(array, np.float32) for name, array in (("mean", mean), ("min", low), ("max", high))}


def _encoded(column: Column, type: type[np.floating[Any]]) -> str:
    with np.errstate(over="ignore"):  # a number beyond 3e38 becomes infinity, which the page does not draw
        data = column.astype(np.dtype(type).newbyteorder("<")).tobytes()
    return base64.b64encode(data).decode()


def _values(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    try:
        return list(map(itemgetter(name), records))
    except KeyError:
        return [record.get(name) for record in records]


def _numbers(values: list[Any]) -> Column | None:
    """Return the values with NaN for anything but a number; None if there is no number."""
    kinds = set(map(type, values))
    if kinds.isdisjoint((int, float, bool)):
        return None
    if kinds <= _PLAIN:
        try:
            return np.array(values, np.float64)
        except OverflowError:  # an integer beyond the range of a float
            pass
    return np.array([_number(value) for value in values], np.float64)


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return math.nan


def _steps(records: Sequence[Mapping[str, Any]]) -> Column:
    steps = _numbers(_values(records, "step"))
    if steps is None:
        return np.zeros(len(records))
    return np.trunc(np.where(np.abs(steps) < 2**63, steps, 0.0))


def _is_shown(name: str) -> bool:
    return name.isprintable() and bool(name.strip()) and len(name) <= MAX_NAME
