"""`Ragged`: rows of ids of different lengths, as two flat arrays."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gristmill.arguments import MAX_NATIVE, check_whole_number
from gristmill.errors import OptionError

__all__ = ["Ragged"]

Side = Literal["right", "left"]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Rows of ids of different lengths: row i is `ids[offsets[i]:offsets[i + 1]]`.

    `len(rows)` is the number of rows, `rows[i]` a view of one row, `rows[a:b]` a `Ragged` of several rows.

    Attributes:
        ids: The ids of all rows, one row after the other.
        offsets: Start of each row in `ids`, followed by `len(ids)`.

    Examples:
        >>> rows = Ragged(np.array([5, 6, 7], np.uint16), np.array([0, 1, 3]))
        >>> len(rows), rows[1].tolist(), rows.tolist()
        (2, [6, 7], [[5], [6, 7]])
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        ids, offsets = self.ids, self.offsets
        if not isinstance(ids, np.ndarray) or ids.ndim != 1:
            raise OptionError(f"ids must be a one-dimensional NumPy array, got {_described(ids)}.")
        if not isinstance(offsets, np.ndarray) or offsets.ndim != 1 or offsets.dtype.kind not in "iu":
            raise OptionError(f"offsets must be a one-dimensional NumPy array of integers, got {_described(offsets)}.")
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(ids) or (offsets[1:] < offsets[:-1]).any():
            raise OptionError(f"offsets must start at 0, never decrease, and end at the number of ids, {len(ids):,}.")

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of ids in each row."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Ragged: ...
    def __getitem__(self, index: int | slice) -> NDArray[Any] | Ragged:
        """Return row `index` as a view of `ids`; for a slice, a `Ragged` of these rows."""
        if isinstance(index, slice):
            return self._rows(index)
        i = operator.index(index)
        if not -len(self) <= i < len(self):
            raise IndexError(f"row {i} is out of range: there are {len(self):,} rows.")
        i %= len(self)
        row: NDArray[Any] = self.ids[self.offsets[i] : self.offsets[i + 1]]
        return row

    def __iter__(self) -> Iterator[NDArray[Any]]:
        ends = self.offsets.tolist()
        return (self.ids[begin:end] for begin, end in pairwise(ends))

    def tolist(self) -> list[list[int]]:
        """Return the rows as lists of ints."""
        ids, ends = self.ids.tolist(), self.offsets.tolist()
        return [ids[begin:end] for begin, end in pairwise(ends)]

    def truncated(self, max_tokens: int, *, side: Side = "right") -> Ragged:
        """Return a copy in which no row is longer than `max_tokens`.

        Args:
            max_tokens: Maximum length of a row.
            side: Side at which longer rows are cut: "right" or "left".

        Raises:
            OptionError: `max_tokens` is less than 1, or `side` is unknown.

        Examples:
            >>> rows = Ragged(np.array([5, 6, 7]), np.array([0, 1, 3]))
            >>> rows.truncated(1).tolist(), rows.truncated(1, side="left").tolist()
            ([[5], [6]], [[5], [7]])
        """
        check_side("side", side)
        lengths = np.minimum(self.lengths, check_max_tokens(max_tokens))
        begins = self.offsets[:-1] if side == "right" else self.offsets[1:] - lengths
        return self._gathered(begins, lengths)

    def padded(
        self, pad_id: int, *, length: int | None = None, side: Side = "right", dtype: DTypeLike | None = None
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the rows as a matrix padded with `pad_id`, and a mask that is True where there is an id.

        Args:
            pad_id: Value of the padding.
            length: Number of columns. Default: length of the longest row. To shorten longer rows first, use
                `truncated`, or `max_tokens` of `encode_batch`.
            side: Side of the padding: "right" or "left".
            dtype: Integer type of the matrix. Default: that of `ids`. `pad_id=-100` needs a signed type.

        Raises:
            OptionError: A row is longer than `length`, `dtype` cannot represent the values, or `side` is unknown.

        Examples:
            >>> ids, mask = Ragged(np.array([5, 6, 7]), np.array([0, 1, 3])).padded(0)
            >>> ids.tolist(), mask.astype(int).tolist()
            ([[5, 0], [6, 7]], [[1, 0], [1, 1]])
        """
        check_side("side", side)
        pad_id = check_whole_number("pad_id", pad_id)
        lengths = self.lengths
        longest = int(lengths.max(initial=0))
        columns = longest if length is None else check_whole_number("length", length)
        if columns < longest:
            raise OptionError(
                f"length={columns} is too small: row {int(lengths.argmax())} has {longest:,} ids. "
                f"Pass length >= {longest}, or cut the rows with truncated({columns})."
            )
        kind = np.dtype(self.ids.dtype if dtype is None else dtype)
        largest = int(self.ids.max(initial=0))
        if (
            kind.kind not in "iu"
            or not np.iinfo(kind).min <= pad_id <= np.iinfo(kind).max
            or largest > np.iinfo(kind).max
        ):
            raise OptionError(
                f"dtype={kind} cannot represent pad_id={pad_id} and ids up to {largest}. Pass another dtype, such as "
                f"int64."
            )
        places = np.arange(columns)
        if side == "right":
            mask = places < lengths[:, None]
        else:
            mask = places >= columns - lengths[:, None]
        matrix = np.full((len(self), columns), pad_id, kind)
        matrix[mask] = self.ids
        return matrix, mask

    def _rows(self, rows: slice) -> Ragged:
        return self._gathered(self.offsets[:-1][rows], self.lengths[rows])

    def _gathered(self, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> Ragged:
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(self.ids[places], offsets)

    def __eq__(self, other: object) -> bool:
        """Whether the rows have the same ids, regardless of dtype."""
        if not isinstance(other, Ragged):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.ids, other.ids)

    __hash__ = None  # type: ignore[assignment]


def _described(value: object) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def check_side(name: str, side: Any) -> Side:
    """Return `side` if it is "right" or "left"."""
    if side not in ("right", "left"):
        raise OptionError(f"{name}={side!r} is not valid. Pass 'right' or 'left'.")
    checked: Side = side
    return checked


def check_max_tokens(max_tokens: Any) -> int:
    """Return `max_tokens` as an int if it is at least 1."""
    number = check_whole_number("max_tokens", max_tokens)
    if number < 1:
        raise OptionError(f"max_tokens must be >= 1, got {number}.")
    return min(number, MAX_NATIVE)
