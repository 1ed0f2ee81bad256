"""Tokens in files of shards, in an array, or in several of them, read in windows.

Shapes: B windows of S tokens.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.corpus.inputs import shown
from gristmill.errors import OptionError, TrainingError
from gristmill.lm.data.checked_file import CheckedFile
from gristmill.shards.maps import MAX_OPEN_MAPS
from gristmill.shards.tokens import Tokens

__all__ = ["ArrayTokens", "JoinedTokens", "TokenFiles", "TokenSource", "beyond_vocabulary", "check_ids"]

DTYPES = ("uint8", "uint16", "uint32", "int32", "int64")


class TokenSource(Protocol):
    """Tokens stored in one or more files, or in an array."""

    @property
    def begins(self) -> list[int]:
        """Position of the first token of each file, then the number of all tokens."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the tokens."""

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """Return the tokens from `begin` to `end`; possibly read-only."""

    def windows(self, starts_B: NDArray[np.int64], length: int) -> NDArray[Any]:
        """Return windows_BS, the `length` tokens from each of `starts_B`; possibly read-only."""

    def place(self, position: int) -> str:
        """Describe the location of token `position`, for messages."""


class ArrayTokens:
    """A one-dimensional array of ids, such as np.memmap("train.bin", np.uint16), as a token source."""

    def __init__(self, array: NDArray[Any]) -> None:
        """Copies the array only if it is not contiguous."""
        if array.ndim != 1 or array.dtype.name not in DTYPES or not array.dtype.isnative:
            raise OptionError(
                f"the array of tokens has {array.ndim} dimensions and dtype {array.dtype}. "
                f"Pass a one-dimensional array of ids with dtype {', '.join(DTYPES)}."
            )
        self.begins = [0, len(array)]
        self.dtype = array.dtype
        # A plain array instead of np.memmap: slicing an np.memmap creates another one, which takes ten times as long.
        self._array = np.ascontiguousarray(array)

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """Return a view of the tokens from `begin` to `end`."""
        return self._array[begin:end]

    def windows(self, starts_B: NDArray[np.int64], length: int) -> NDArray[Any]:
        """Return windows_BS, the `length` tokens from each of `starts_B`."""
        # A view with one row per possible start. Indexing the view copies only the selected rows.
        step = self._array.itemsize
        shape = (len(self._array) - length + 1, length)
        rows_NS: NDArray[Any] = np.ndarray(shape, self.dtype, self._array, strides=(step, step))
        return rows_NS[starts_B]

    def place(self, position: int) -> str:
        """Return the position in the array."""
        return f"token {position:,} of the array"


class TokenFiles:
    """The tokens of shards, read from their files. A file that is truncated meanwhile raises `InputChangedError`."""

    def __init__(self, tokens: Tokens) -> None:
        """No file is opened yet."""
        self.begins, self.dtype = tokens.begins, tokens.dtype
        self._begins = np.array(tokens.begins)
        self._paths, self._offset = tokens.paths, tokens.offset
        # A closure over `self` would be a reference cycle, which keeps files open until garbage collection.
        self._opened = lru_cache(MAX_OPEN_MAPS)(partial(_open, tokens, tokens.paths))

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """Return the tokens from `begin` to `end`, which may span several files."""
        return np.frombuffer(self._bytes(begin, end), self.dtype)

    def windows(self, starts_B: NDArray[np.int64], length: int) -> NDArray[Any]:
        """Return windows_BS, the `length` tokens from each of `starts_B`, which may span several files."""
        files_B = np.searchsorted(self._begins, starts_B, side="right") - 1
        offsets_B = (starts_B - self._begins[files_B]) * self.dtype.itemsize + self._offset
        # A window that spans several files is read in parts.
        files_B[starts_B + length > self._begins[files_B + 1]] = -1
        rows = list(zip(files_B.tolist(), offsets_B.tolist(), starts_B.tolist(), strict=True))
        # At most as many windows at once as files may be open.
        data = b"".join(self._read(rows[i : i + MAX_OPEN_MAPS], length) for i in range(0, len(rows), MAX_OPEN_MAPS))
        return np.frombuffer(data, self.dtype).reshape(len(starts_B), length)

    def _read(self, rows: list[tuple[int, int, int]], length: int) -> bytes:
        """Return the bytes of windows, given as (file, or -1 for several; offset in the file; first token).

        The system call per window takes most of the time, so nothing else is done per window.
        """
        opened = {file: self._opened(file) for file, _, _ in rows if file >= 0}
        num_bytes = length * self.dtype.itemsize
        parts = [
            os.pread(opened[file].descriptor, num_bytes, offset) if file >= 0 else self._bytes(start, start + length)
            for file, offset, start in rows
        ]
        data = b"".join(parts)
        if len(data) == len(rows) * num_bytes:
            return data
        return b"".join(self._bytes(start, start + length) for _, _, start in rows)  # finds the file that is too short

    def place(self, position: int) -> str:
        """Return the file and the position in it."""
        file = bisect_right(self.begins, position) - 1
        return f"{shown(self._paths[file])}: token {position - self.begins[file]:,}"

    def _bytes(self, begin: int, end: int) -> bytes:
        parts = []
        while begin < end:
            file = bisect_right(self.begins, begin) - 1
            stop = min(end, self.begins[file + 1])
            offset = self._offset + (begin - self.begins[file]) * self.dtype.itemsize
            parts.append(self._opened(file).read(offset, (stop - begin) * self.dtype.itemsize))
            begin = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)


class JoinedTokens:
    """The tokens of several sources, one after another."""

    def __init__(self, sources: Sequence[TokenSource]) -> None:
        """Ids of different dtypes are read as the widest of these dtypes."""
        self._sources = sources
        self.dtype = np.result_type(*(source.dtype for source in sources))
        self._bases = np.cumsum([0, *(source.begins[-1] for source in sources)])
        bases = self._bases.tolist()
        inner = [base + begin for base, source in zip(bases, sources, strict=False) for begin in source.begins[:-1]]
        self.begins: list[int] = [*inner, bases[-1]]

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """Return the tokens from `begin` to `end`, which may span several sources."""
        parts = [np.empty(0, self.dtype)]
        for source, base in zip(self._sources, self._bases.tolist(), strict=False):
            first, last = max(begin - base, 0), min(end - base, source.begins[-1])
            if first < last:
                parts.append(source.stretch(first, last).astype(self.dtype, copy=False))
        return np.concatenate(parts)

    def windows(self, starts_B: NDArray[np.int64], length: int) -> NDArray[Any]:
        """Return windows_BS, the `length` tokens from each of `starts_B`. Each window must be inside one source."""
        numbers_B = np.searchsorted(self._bases, starts_B, side="right") - 1
        windows_BS = np.empty((len(starts_B), length), self.dtype)
        for number, source in enumerate(self._sources):
            here_B = numbers_B == number
            if here_B.any():
                windows_BS[here_B] = source.windows(starts_B[here_B] - self._bases[number], length)
        return windows_BS

    def place(self, position: int) -> str:
        """Return the location of the token in its source."""
        number = int(np.searchsorted(self._bases, position, side="right")) - 1
        return self._sources[number].place(position - int(self._bases[number]))


def _open(tokens: Tokens, paths: list[Path], number: int) -> CheckedFile:
    num_tokens = tokens.begins[number + 1] - tokens.begins[number]
    try:
        return CheckedFile(
            paths[number],
            tokens.offset + num_tokens * tokens.dtype.itemsize,
            remedy=f"Restore the file (verify_shards({str(paths[number].parent)!r}) lists damaged files), then resume "
            f"from the last checkpoint.",
        )
    finally:
        tokens.check()  # "the shards were replaced" explains more than a wrong size


def check_ids(ids: NDArray[Any], vocab_size: int | None, place: Callable[[int], str]) -> None:
    """Raise `TrainingError` if an id is not below `vocab_size`, because the model has no row for it.

    place: returns the location of the id with a given index in the flattened `ids`, for the message.

    >>> check_ids(np.array([7, 299]), 300, "token {}".format)
    """
    if vocab_size is None or not ids.size:
        return
    # Viewed as unsigned, a negative id is huge, so one maximum finds both kinds.
    unsigned = ids.view(f"u{ids.itemsize}")
    if int(unsigned.max()) >= vocab_size:
        number = int(unsigned.argmax())
        raise beyond_vocabulary(place(number), int(ids.reshape(-1)[number]), vocab_size)


def beyond_vocabulary(place: str, id: int, vocab_size: int) -> TrainingError:
    """Return the error for an `id` that the model has no row for; `place` is its location."""
    larger = f" If a larger vocabulary made the ids, pass vocab_size={id + 1} or more." if id >= 0 else ""
    return TrainingError(
        f"{place} has the id {id}, but vocab_size={vocab_size} allows 0 to {vocab_size - 1}.{larger} Otherwise the "
        f"data are damaged: encode or copy them again."
    )
