"""All tokens of a split as one array that lies in many files."""

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
    """Tokens by number: an array over all shards of a split, each mapped when something in it is asked for.

    `tokens[i]` is one id, `tokens[a:b]` an array: a read-only view of the map where it lies in one shard, otherwise a
    new array. `np.asarray(tokens)` reads them all.
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
        """The tokens in `files` of `folder`, one after the other: `lengths` tokens each, from byte `offset` on.

        With an `edition`, reading raises `InputChangedError` once other shards have taken their place.
        """
        self._parts = (folder, tuple(files), tuple(lengths), dtype, edition, offset)
        self.dtype = dtype
        # Where each file begins, and the end of the last.
        self.begins: list[int] = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
        check = None if edition is None else edition.check
        self._map = map_opener(*self._parts[:4], offset=offset, check=check)

    @property
    def paths(self) -> list[Path]:
        """The files, in order."""
        return [self._parts[0] / file for file in self._parts[1]]

    @property
    def offset(self) -> int:
        """Where the tokens begin in each file, in bytes."""
        return self._parts[5]

    def check(self) -> None:
        """Raise `InputChangedError` if other shards have taken the place of these, as far as that can be known."""
        edition = self._parts[4]
        if edition is not None:
            edition.check()

    @property
    def shape(self) -> tuple[int]:
        """One dimension: the number of tokens."""
        return (self.begins[-1],)

    @property
    def size(self) -> int:
        """The number of tokens."""
        return self.begins[-1]

    @property
    def nbytes(self) -> int:
        """The bytes of all tokens."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.begins[-1]

    def __getitem__(self, index: Any) -> Any:
        """Token `index`; for a slice, an array."""
        if isinstance(index, slice):
            return self._slice(*index.indices(len(self)))
        try:
            i = operator.index(index)
        except TypeError:
            raise TypeError(
                f"tokens are found by an int or a slice, not by {type(index).__name__}. np.asarray(tokens) reads all."
            ) from None
        if not -len(self) <= i < len(self):
            raise IndexError(f"there is no token {i}: there are {len(self):,}.")
        i %= len(self)
        file = bisect_right(self.begins, i) - 1
        return self._map(file)[i - self.begins[file]]

    def _slice(self, start: int, stop: int, step: int) -> NDArray[Any]:
        if step > 0:
            found = self.stretch(start, max(start, stop))
            return found if step == 1 else found[::step]
        return self.stretch(stop + 1, max(start, stop) + 1)[::-1][::-step]

    def stretch(self, begin: int, end: int) -> NDArray[Any]:
        """The tokens from `begin` to `end`, which must lie in the range."""
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
        """All tokens, read into memory unless they lie in one shard."""
        kind = self.dtype if dtype is None else np.dtype(dtype)
        if copy is False and (len(self.begins) > 2 or kind != self.dtype):
            raise ValueError("tokens of several shards, or of another dtype, are a copy. Leave copy=False out.")
        tokens = self.stretch(0, len(self))
        return np.array(tokens, kind) if copy else tokens.astype(kind, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts

    def __repr__(self) -> str:
        shards = len(self.begins) - 1
        return f"<Tokens: {len(self):,} {self.dtype.name} in {shards:,} shard{'s' * (shards != 1)}>"
