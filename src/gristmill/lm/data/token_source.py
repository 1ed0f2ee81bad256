"""Where the tokens lie, and windows read from there: files of shards, an array, or several of them.

Shapes: B windows, S tokens each.
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
    """Tokens that lie in one or more files, or in an array."""

    @property
    def begins(self) -> list[int]:
        """The number of the first token of each file, and at the end that of all tokens."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the tokens."""

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """The tokens from `begin` to `end`; perhaps not writable."""

    def windows(self, starts_B: NDArray[np.int64], length: int) -> NDArray[Any]:
        """windows_BS: the tokens from each of `starts_B` on; perhaps not writable."""

    def place(self, position: int) -> str:
        """Where the token number `position` lies, for messages."""


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
        """The tokens from `begin` to `end`, as a view."""
        return self._array[begin:end]

    def windows(self, starts_B: NDArray[np.int64], length: int) -> NDArray[Any]:
        """windows_BS: the tokens from each of `starts_B` on."""
        # All windows as one view, a row for each token that one can begin at: indexing it copies rows.
        step = self._array.itemsize
        shape = (len(self._array) - length + 1, length)
        rows_NS: NDArray[Any] = np.ndarray(shape, self.dtype, self._array, strides=(step, step))
        return rows_NS[starts_B]

    def place(self, position: int) -> str:
        """Which element it is."""
        return f"token {position:,} of the array"


class TokenFiles:
    """The tokens of shards, read from their files. A file that is cut short meanwhile is an `InputChangedError`."""

    def __init__(self, tokens: Tokens) -> None:
        """Nothing is opened yet."""
        self.begins, self.dtype = tokens.begins, tokens.dtype
        self._begins = np.array(tokens.begins)
        self._paths, self._offset = tokens.paths, tokens.offset
        # A closure over `self` would be a cycle, which keeps files open until memory is tidied.
        self._opened = lru_cache(MAX_OPEN_MAPS)(partial(_open, tokens, tokens.paths))

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """The tokens from `begin` to `end`, across the edges of files too."""
        return np.frombuffer(self._bytes(begin, end), self.dtype)

    def windows(self, starts_B: NDArray[np.int64], length: int) -> NDArray[Any]:
        """windows_BS: the tokens from each of `starts_B` on, across the edges of files too."""
        files_B = np.searchsorted(self._begins, starts_B, side="right") - 1
        offsets_B = (starts_B - self._begins[files_B]) * self.dtype.itemsize + self._offset
        # A window that does not fit into its file is read piece by piece.
        files_B[starts_B + length > self._begins[files_B + 1]] = -1
        rows = list(zip(files_B.tolist(), offsets_B.tolist(), starts_B.tolist(), strict=True))
        # Not more at once than files may be open.
        data = b"".join(self._read(rows[i : i + MAX_OPEN_MAPS], length) for i in range(0, len(rows), MAX_OPEN_MAPS))
        return np.frombuffer(data, self.dtype).reshape(len(starts_B), length)

    def _read(self, rows: list[tuple[int, int, int]], length: int) -> bytes:
        """The bytes of windows, each given by its file (-1: several), its offset there, and its first token.

        One system call per window takes most of the time, so nothing else is done for each of them.
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
        return b"".join(self._bytes(start, start + length) for _, _, start in rows)  # finds out which file is too short

    def place(self, position: int) -> str:
        """The file, and which of its tokens it is."""
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
    """The tokens of several sources, one after the other."""

    def __init__(self, sources: Sequence[TokenSource]) -> None:
        """Ids of different types are all read as the largest of the types."""
        self._sources = sources
        self.dtype = np.result_type(*(source.dtype for source in sources))
        self._bases = np.cumsum([0, *(source.begins[-1] for source in sources)])
        bases = self._bases.tolist()
        inner = [base + begin for base, source in zip(bases, sources, strict=False) for begin in source.begins[:-1]]
        self.begins: list[int] = [*inner, bases[-1]]

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """The tokens from `begin` to `end`, across the edges of sources too."""
        parts = [np.empty(0, self.dtype)]
        for source, base in zip(self._sources, self._bases.tolist(), strict=False):
            first, last = max(begin - base, 0), min(end - base, source.begins[-1])
            if first < last:
                parts.append(source.stretch(first, last).astype(self.dtype, copy=False))
        return np.concatenate(parts)

    def windows(self, starts_B: NDArray[np.int64], length: int) -> NDArray[Any]:
        """windows_BS: the tokens from each of `starts_B` on. Each window must lie inside one source."""
        numbers_B = np.searchsorted(self._bases, starts_B, side="right") - 1
        windows_BS = np.empty((len(starts_B), length), self.dtype)
        for number, source in enumerate(self._sources):
            here_B = numbers_B == number
            if here_B.any():
                windows_BS[here_B] = source.windows(starts_B[here_B] - self._bases[number], length)
        return windows_BS

    def place(self, position: int) -> str:
        """Where the token lies in its source."""
        number = int(np.searchsorted(self._bases, position, side="right")) - 1
        return self._sources[number].place(position - int(self._bases[number]))


def _open(tokens: Tokens, paths: list[Path], number: int) -> CheckedFile:
    num_tokens = tokens.begins[number + 1] - tokens.begins[number]
    try:
        return CheckedFile(
            paths[number],
            tokens.offset + num_tokens * tokens.dtype.itemsize,
            remedy=f"Put the file back as it was (verify_shards({str(paths[number].parent)!r}) lists damaged files), "
            f"then resume from the last checkpoint.",
        )
    finally:
        tokens.check()  # that others have taken the place of the shards explains more than a size does


def check_ids(ids: NDArray[Any], vocab_size: int | None, place: Callable[[int], str]) -> None:
    """Raise `TrainingError` if an id is not below `vocab_size`: the model has no row for it.

    place: where the id lies that has this number in `ids`, counted along its rows.

    >>> check_ids(np.array([7, 299]), 300, "token {}".format)
    """
    if vocab_size is None or not ids.size:
        return
    # A negative id is a huge one without its sign, so one maximum finds both.
    unsigned = ids.view(f"u{ids.itemsize}")
    if int(unsigned.max()) >= vocab_size:
        number = int(unsigned.argmax())
        raise beyond_vocabulary(place(number), int(ids.reshape(-1)[number]), vocab_size)


def beyond_vocabulary(place: str, id: int, vocab_size: int) -> TrainingError:
    """The error for an `id` that the model has no row for; `place` is where it lies."""
    larger = f" If a larger vocabulary made the ids, pass vocab_size={id + 1} or more." if id >= 0 else ""
    return TrainingError(
        f"{place} has the id {id}, and vocab_size={vocab_size} allows 0 to {vocab_size - 1}.{larger} Otherwise the "
        f"data are damaged: encode or copy them again."
    )
