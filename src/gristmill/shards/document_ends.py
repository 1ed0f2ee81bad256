"""Ends of the documents of a split, from the indexes beside its token files or from its end-of-text ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import ShardsFormatError
from gristmill.shards.layouts import Layout
from gristmill.shards.manifest import EndOfText, ShardEntry
from gristmill.shards.maps import MAX_OPEN_MAPS
from gristmill.shards.tokens import Tokens

CHUNK_TOKENS = 1 << 20


class DocumentEnds(Protocol):
    """The ends of all documents, in tokens of the split."""

    def __len__(self) -> int:
        """Return the number of documents."""

    def end(self, i: int) -> int:
        """Return the end of document `i`."""

    def document_at(self, position: int) -> int:
        """Return the number of the document that contains token `position`."""

    def chunks(self) -> Iterator[NDArray[np.int64]]:
        """Yield all ends in order, in chunks."""

    def all(self) -> NDArray[np.int64]:
        """Return all ends as one array."""


class IndexedEnds:
    """Document ends from the index of each shard, which is opened on first access."""

    def __init__(
        self,
        folder: Path,
        entries: Sequence[ShardEntry],
        layout: Layout,
        begins: Sequence[int],
        check: Callable[[], None],
    ) -> None:
        """begins: first token of each shard, in tokens of the split; `check` is called after an index is opened."""
        self._begins = begins
        # Number of the first document of each shard, and the total.
        self._firsts: list[int] = [0, *np.cumsum([entry.documents for entry in entries], dtype=np.int64).tolist()]

        @lru_cache(MAX_OPEN_MAPS)
        def local_ends(shard: int) -> NDArray[np.int64]:
            try:
                return layout.document_ends(folder / (entries[shard].index or ""), entries[shard].documents)
            finally:
                check()

        self._local_ends = local_ends

    def __len__(self) -> int:
        return self._firsts[-1]

    def end(self, i: int) -> int:
        """Return the end of document `i`."""
        shard = bisect_right(self._firsts, i) - 1
        return self._begins[shard] + int(self._local_ends(shard)[i - self._firsts[shard]])

    def document_at(self, position: int) -> int:
        """Return the number of the document that contains token `position`; it may end in a later shard."""
        shard = bisect_right(self._begins, position) - 1
        return self._firsts[shard] + int(
            np.searchsorted(self._local_ends(shard), position - self._begins[shard], "right")
        )

    def chunks(self) -> Iterator[NDArray[np.int64]]:
        """Yield the ends, one shard at a time."""
        for shard in range(len(self._firsts) - 1):
            yield self._local_ends(shard) + self._begins[shard]

    def all(self) -> NDArray[np.int64]:
        """Return all ends as one array."""
        shards = range(len(self._firsts) - 1)
        # Opening the files checks their sizes first, so a forged manifest cannot make this allocate too much.
        ends = np.empty(sum(len(self._local_ends(shard)) for shard in shards), np.int64)
        for shard in shards:
            np.add(
                self._local_ends(shard), self._begins[shard], out=ends[self._firsts[shard] : self._firsts[shard + 1]]
            )
        return ends


class MarkedEnds:
    """Document ends from the end-of-text ids, for layouts without an index. All tokens are read on first access."""

    def __init__(self, tokens: Tokens, mark: EndOfText | None, num_documents: int | None, name: str) -> None:
        """num_documents: the number in the manifest; None without a manifest. `name` is for error messages."""
        self._tokens, self._mark, self._num_documents, self._name = tokens, mark, num_documents, name

    def __len__(self) -> int:
        return len(self._ends) if self._num_documents is None else self._num_documents

    def end(self, i: int) -> int:
        """Return the end of document `i`."""
        return int(self._ends[i])

    def document_at(self, position: int) -> int:
        """Return the number of the document that contains token `position`."""
        return int(np.searchsorted(self._ends, position, "right"))

    def chunks(self) -> Iterator[NDArray[np.int64]]:
        """Yield all ends at once."""
        yield self._ends

    def all(self) -> NDArray[np.int64]:
        """Return all ends as one array."""
        return self._ends

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        ends = self._found_ends()
        if self._num_documents is not None and len(ends) != self._num_documents:
            raise ShardsFormatError(
                f"{self._name}: its files have no index, and the end-of-text id gives {len(ends):,} documents where "
                f"the manifest records {self._num_documents:,}. Either the files are damaged, which verify_shards() "
                f"detects, or documents contain the id. Encode with format='gristmill' to record where they end."
            )
        return ends

    def _found_ends(self) -> NDArray[np.int64]:
        if self._mark is None:
            raise ShardsFormatError(
                f"{self._name}: its files do not record where documents end, and no end-of-text token is known. Pass "
                f"tokenizer= to gm.Shards if its end-of-text token separates them; .tokens reads the ids as one array."
            )
        after, total = self._mark.position == "after", len(self._tokens)
        places = [np.empty(0, np.int64)]
        for begin in range(0, total, CHUNK_TOKENS):
            ids = self._tokens.stretch(begin, min(begin + CHUNK_TOKENS, total))
            places.append(np.flatnonzero(ids == self._mark.id) + begin)
        marks = np.concatenate(places)
        # A document ends after its mark, or before the mark of the next one; the last document ends with the tokens.
        ends = marks + 1 if after else marks[marks > 0]
        last = [total] if total and (not len(ends) or ends[-1] < total) else []
        return np.concatenate([ends, np.array(last, np.int64)])
