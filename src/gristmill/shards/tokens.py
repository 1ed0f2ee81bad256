"""Tokens: all tokens of a split as one array over many files."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.shards.edition import Edition
from gristmill.shards.maps import map_opener

__all__ = ["Tokens"]

ITERATED_TOKENS = 1 << 16


class Tokens:
    """The tokens of all shards of a split as one array. A shard is mapped on first access.

    `tokens[i]` is one id, `tokens[a:b]` an array: a read-only view of the memory map if the slice is inside one shard,
    otherwise a copy. `np.asarray(tokens)` reads all tokens.
    """

    ndim = 1

    def __init__(
        self,
        folder: Path,
        files: Sequence[str],
        lengths: Sequence[int],
        dtype: np.dtype[Any],
        edition: Edition | None = None,
        offset: int = 0,
    ) -> None:
        """The tokens in `files` of `folder`, in order: `lengths[i]` tokens in file i, starting at byte `offset`.

        With an `edition`, reading raises `InputChangedError` once the shards have been replaced.
        """
        self._parts = (folder, tuple(files), tuple(lengths), dtype, edition, offset)
        self.dtype = dtype
        # Number of the first token of each file, and the total.
        self.begins: list[int] = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
        check = None if edition is None else edition.check
        self._map = map_opener(*self._parts[:4], offset=offset, check=check)

    @property
    def paths(self) -> list[Path]:
        """The files, in order."""
        return [self._parts[0] / file for file in self._parts[1]]

    @property
    def offset(self) -> int:
        """Position of the first token in each file, in bytes."""
        return self._parts[5]

    def check(self) -> None:
        """Raise `InputChangedError` if the shards have been replaced, as far as that can be detected."""
        edition = self._parts[4]
        if edition is not None:
            edition.check()

    @property
    def shape(self) -> tuple[int]:
        """One dimension: the number of tokens."""
        return (self.begins[-1],)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return self.begins[-1]

    @property
    def nbytes(self) -> int:
        """Size of all tokens, in bytes."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.begins[-1]

    def __getitem__(self, index: Any) -> Any:
        """Return token `index`; an array for a slice."""
        if isinstance(index, slice):
            return self._slice(*index.indices(len(self)))
        try:
            i = operator.index(index)
        except TypeError:
            raise TypeError(
                f"tokens are indexed by an int or a slice, not {type(index).__name__}. np.asarray(tokens) reads all."
            ) from None
        if not -len(self) <= i < len(self):
            raise IndexError(f"token {i} does not exist: there are {len(self):,} tokens.")
        i %= len(self)
        file = bisect_right(self.begins, i) - 1
        return self._map(file)[i - self.begins[file]]

    def _slice(self, start: int, stop: int, step: int) -> NDArray[Any]:
        if step > 0:
            found = self.stretch(start, max(start, stop))
            return found if step == 1 else found[::step]
        return self.stretch(stop + 1, max(start, stop) + 1)[::-1][::-step]

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """Return the tokens from `begin` to `end`, which must be in range."""
        file = bisect_right(self.begins, begin) - 1
        if begin >= end:
            return np.empty(0, self.dtype)
        if end <= self.begins[file + 1]:
            base = self.begins[file]
            view: NDArray[Any] = self._map(file)[begin - base : end - base]
            return view
        found = np.empty(end - begin, self.dtype)
        position = begin
        while position < end:
            file = bisect_right(self.begins, position) - 1
            base, stop = self.begins[file], min(end, self.begins[file + 1])
            found[position - begin : stop - begin] = self._map(file)[position - base : stop - base]
            position = stop
        return found

    def __iter__(self) -> Iterator[Any]:
        for begin in range(0, len(self), ITERATED_TOKENS):
            yield from self.stretch(begin, min(begin + ITERATED_TOKENS, len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all tokens; a copy in memory unless they are in one shard."""
        kind = self.dtype if dtype is None else np.dtype(dtype)
        if copy is False and (len(self.begins) > 2 or kind != self.dtype):
            raise ValueError("copy=False is not possible: several shards, or another dtype, need a copy. Leave it out.")
        tokens = self.stretch(0, len(self))
        return np.array(tokens, kind) if copy else tokens.astype(kind, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts

    def __repr__(self) -> str:
        shards = len(self.begins) - 1
        return f"<Tokens: {len(self):,} {self.dtype.name} in {shards:,} shard{'s' * (shards != 1)}>"
