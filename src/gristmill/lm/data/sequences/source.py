"""Sequences: where the documents of a split lie, each to be read whole.

Shapes: N sequences, T tokens (or vectors of E numbers) in one.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.corpus.inputs import shown
from gristmill.errors import ShardsFormatError
from gristmill.lm.data.checked_file import CheckedFile
from gristmill.lm.data.token_dataset import check_positive
from gristmill.lm.data.token_source import TokenFiles
from gristmill.shards.shards import Shards

__all__ = ["FlatSequences", "Kind", "SequenceSource", "ShardSequences"]

Kind = Literal["tokens", "vectors"]


class SequenceSource(Protocol):
    """Sequences by number. Pickles as the place where they lie, so that workers open it themselves."""

    @property
    def kind(self) -> Kind:
        """What a sequence is made of."""

    @property
    def embedding_dim(self) -> int | None:
        """E, the numbers of a vector; None for tokens."""

    @property
    def num_sequences(self) -> int:
        """N; documents without a token are none."""

    @property
    def lengths_N(self) -> NDArray[np.int64]:
        """How long each is: from 1 to max_sequence_length."""

    @property
    def num_tokens(self) -> int:
        """All lengths together."""

    @property
    def source_bytes(self) -> int | None:
        """The bytes of the texts that they were encoded from; None where there is no text, or some were cut short."""

    def read(self, index: int) -> NDArray[Any]:
        """Sequence `index`: T ids, or T x E numbers of 32 bits; perhaps not writable."""

    def place(self, index: int, position: int) -> str:
        """Where the token number `position` of sequence `index` lies, for messages."""


class ShardSequences:
    """The documents of shards, each with the end-of-text id at its end where the shards have one.

    One that is longer than max_sequence_length is cut, and has no end-of-text id: it has not ended there. Documents
    without a token are left out.
    """

    kind: Kind = "tokens"
    embedding_dim: int | None = None

    def __init__(self, shards: Shards, *, max_sequence_length: int) -> None:
        """Nothing is read yet."""
        self._shards = shards
        self._tokens = TokenFiles(shards.tokens)
        self._max_length = check_positive("max_sequence_length", max_sequence_length)
        end = shards.end_of_text
        self._num_marks = 0 if end is None else 1
        # Before a document, it is left there and put at the end; after it, a sequence is just a stretch of the tokens.
        self._moved_mark = end.id if end is not None and end.position == "before" else None

    @property
    def num_sequences(self) -> int:
        """The documents that have a token."""
        return len(self.lengths_N)

    @cached_property
    def lengths_N(self) -> NDArray[np.int64]:
        """How long each is."""
        return _read_only(np.minimum(self._full_lengths_N, self._max_length))

    @cached_property
    def num_tokens(self) -> int:
        """All lengths together."""
        return int(self.lengths_N.sum())

    @property
    def source_bytes(self) -> int | None:
        """The bytes of the texts; None where some were cut short."""
        was_cut = int(self._full_lengths_N.max(initial=0)) > self._max_length
        return None if was_cut else self._shards.source_bytes

    def read(self, index: int) -> NDArray[Any]:
        """The ids of sequence `index`."""
        begin, length = int(self._begins_N[index]), int(self.lengths_N[index])
        if self._moved_mark is None:
            return self._tokens.stretch(begin, begin + length)
        if length < self._full_lengths_N[index]:
            return self._tokens.stretch(begin + 1, begin + 1 + length)
        ids = self._tokens.stretch(begin + 1, begin + length)
        return np.append(ids, ids.dtype.type(self._moved_mark))

    def place(self, index: int, position: int) -> str:
        """The file, and which of its tokens it is."""
        return self._tokens.place(int(self._begins_N[index]) + position + (self._moved_mark is not None))

    @property
    def _full_lengths_N(self) -> NDArray[np.int64]:
        return self._begins_and_lengths[1]

    @property
    def _begins_N(self) -> NDArray[np.int64]:
        return self._begins_and_lengths[0]

    @cached_property
    def _begins_and_lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each document that is not empty begins, and how long it is before it is cut."""
        ends_D = self._shards.document_ends
        lengths_D = np.diff(ends_D, prepend=0)
        if len(ends_D) and (lengths_D.min() < 0 or ends_D[-1] > self._shards.num_tokens):
            raise ShardsFormatError(
                f"{self._shards!r}: a document ends before it begins, or after all tokens: an index is damaged. "
                f"verify_shards() finds which."
            )
        is_kept_D = lengths_D > self._num_marks
        if is_kept_D.all():
            return ends_D - lengths_D, lengths_D
        return (ends_D - lengths_D)[is_kept_D], lengths_D[is_kept_D]

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_shards, (self._shards, self._max_length)

    def __repr__(self) -> str:
        return f"<ShardSequences: {self.num_sequences:,} sequences, {self.num_tokens:,} tokens>"


class FlatSequences:
    """Sequences that lie one after the other in a file of ids or of vectors, as the cache has them.

    train.bin        the ids (uint32), or the vectors (E numbers of 32 bits each), little-endian
    train.ends.npy   where each sequence ends
    """

    source_bytes: int | None = None

    def __init__(
        self, folder: Path, split: str, *, kind: Kind, embedding_dim: int | None, max_sequence_length: int
    ) -> None:
        """Nothing is read yet. A sequence longer than max_sequence_length is cut."""
        self.kind, self.embedding_dim = kind, embedding_dim
        self._folder, self._split = folder, split
        self._max_length = check_positive("max_sequence_length", max_sequence_length)

    @property
    def num_sequences(self) -> int:
        """N."""
        return len(self._ends_N)

    @cached_property
    def lengths_N(self) -> NDArray[np.int64]:
        """How long each is."""
        return _read_only(np.minimum(np.diff(self._ends_N, prepend=0), self._max_length))

    @cached_property
    def num_tokens(self) -> int:
        """All lengths together: ids or vectors."""
        return int(self.lengths_N.sum())

    def read(self, index: int) -> NDArray[Any]:
        """The ids or the vectors of sequence `index`."""
        begin = int(self._ends_N[index - 1]) if index else 0
        items = np.frombuffer(
            self._file.read(begin * self._item_bytes, int(self.lengths_N[index]) * self._item_bytes),
            np.dtype("<u4" if self.embedding_dim is None else "<f4"),
        )
        return items if self.embedding_dim is None else items.reshape(-1, self.embedding_dim)

    def place(self, index: int, position: int) -> str:
        """The file, the sequence and the token in it."""
        return f"{shown(self._path)}: token {position:,} of sequence {index:,}"

    @cached_property
    def _ends_N(self) -> NDArray[np.int64]:
        ends: NDArray[np.int64] = np.load(self._folder / f"{self._split}.ends.npy", allow_pickle=False)
        return _read_only(ends)

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._split}.bin"

    @property
    def _item_bytes(self) -> int:
        return 4 * (self.embedding_dim or 1)

    @cached_property
    def _file(self) -> CheckedFile:
        num_items = int(self._ends_N[-1]) if len(self._ends_N) else 0
        return CheckedFile(
            self._path,
            num_items * self._item_bytes,
            remedy="It belongs to the cache, which is made again from the Parquet files: resume from the last "
            "checkpoint.",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_flat, (self._folder, self._split, self.kind, self.embedding_dim, self._max_length)

    def __repr__(self) -> str:
        return f"<FlatSequences: {self.num_sequences:,} sequences, {self.num_tokens:,} {self.kind}>"


def _open_shards(shards: Shards, max_sequence_length: int) -> ShardSequences:
    return ShardSequences(shards, max_sequence_length=max_sequence_length)


def _open_flat(
    folder: Path, split: str, kind: Kind, embedding_dim: int | None, max_sequence_length: int
) -> FlatSequences:
    return FlatSequences(folder, split, kind=kind, embedding_dim=embedding_dim, max_sequence_length=max_sequence_length)


def _read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.flags.writeable = False
    return array
