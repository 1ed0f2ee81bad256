"""Windows of tokens gathered from memory maps.

Shapes: B windows, S tokens each.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import OptionError

__all__ = ["ArrayTokens", "TokenSource", "WindowReader"]

DTYPES = ("uint8", "uint16", "uint32", "int32", "int64")


class TokenSource(Protocol):
    """Tokens that lie in one or more files: `gristmill.shards.Tokens`, or an array."""

    @property
    def begins(self) -> list[int]:
        """The number of the first token of each file, and at the end that of all tokens."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the tokens."""

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """The tokens from `begin` to `end`: a view where they lie in one file."""


class ArrayTokens:
    """A one-dimensional array of ids, such as np.memmap("train.bin", np.uint16), as a source of tokens."""

    def __init__(self, array: NDArray[Any]) -> None:
        """Nothing is copied, unless every other element or the like was taken."""
        if array.ndim != 1 or array.dtype.name not in DTYPES or not array.dtype.isnative:
            raise OptionError(
                f"the tokens are an array of {array.ndim} dimensions and dtype {array.dtype}. "
                f"Pass ids in one dimension, of dtype {', '.join(DTYPES)}."
            )
        self.begins = [0, len(array)]
        self.dtype = array.dtype
        # Not an np.memmap any more: each slice of one is another, which takes ten times as long to make.
        self._array = np.ascontiguousarray(array)

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """The tokens from `begin` to `end`."""
        return self._array[begin:end]


class WindowReader:
    """Windows of one length from anywhere in the tokens, across the edges of files too."""

    def __init__(self, tokens: TokenSource, window_length: int) -> None:
        """Nothing is read yet."""
        self._tokens = tokens
        self._length = window_length
        self._begins = np.array(tokens.begins)

    def read(self, starts_B: NDArray[np.int64]) -> NDArray[Any]:
        """windows_BS: the tokens from each of `starts_B` on, in a new array of the dtype of the source."""
        files_B = np.searchsorted(self._begins, starts_B, side="right") - 1
        # A window that does not fit into its file is read piece by piece.
        files_B[starts_B + self._length > self._begins[files_B + 1]] = -1
        if (files_B == files_B[0]).all():
            return self._read_inside(int(files_B[0]), starts_B)
        windows_BS = np.empty((len(starts_B), self._length), self._tokens.dtype)
        by_file_B = np.argsort(files_B, kind="stable")
        for rows in np.split(by_file_B, np.flatnonzero(np.diff(files_B[by_file_B])) + 1):
            windows_BS[rows] = self._read_inside(int(files_B[rows[0]]), starts_B[rows])
        return windows_BS

    def _read_inside(self, file: int, starts_B: NDArray[np.int64]) -> NDArray[Any]:
        if file == -1:
            return np.stack([self._tokens.stretch(start, start + self._length) for start in starts_B.tolist()])
        begin, end = self._tokens.begins[file : file + 2]
        part = self._tokens.stretch(begin, end)
        # All windows of the file as one view, a row for each token that one can begin at: indexing it copies rows.
        step = part.itemsize
        rows_NS: NDArray[Any] = np.ndarray(
            (end - begin - self._length + 1, self._length), part.dtype, part, strides=(step, step)
        )
        return rows_NS[starts_B - begin]
