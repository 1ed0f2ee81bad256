"""Sources of sequences: the documents of a split, read one at a time.

Shapes: N sequences, each of T tokens (or vectors of E numbers).
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
    """Sequences by number. Pickling stores their location, so that workers open the files themselves."""

    @property
    def kind(self) -> Kind:
        """Kind of the items of a sequence."""

    @property
    def embedding_dim(self) -> int | None:
        """Size of a vector, E; None for tokens."""

    @property
    def num_sequences(self) -> int:
        """Number of sequences, N, without empty documents."""

    @property
    def lengths_N(self) -> NDArray[np.int64]:
        """Length of each sequence, from 1 to max_sequence_length."""

    @property
    def num_tokens(self) -> int:
        """Sum of all lengths."""

    @property
    def source_bytes(self) -> int | None:
        """Bytes of the original texts; None if there is no text, or if some texts were truncated."""

    def read(self, index: int) -> NDArray[Any]:
        """Return sequence `index`: T ids, or T x E float32 numbers; possibly read-only."""

    def place(self, index: int, position: int) -> str:
        """Describe the location of token `position` of sequence `index`, for messages."""


class ShardSequences:
    """The documents of shards, each followed by the end-of-text id if the shards have one.

    A document longer than max_sequence_length is truncated and has no end-of-text id. Empty documents are skipped.
    """

    kind: Kind = "tokens"
    embedding_dim: int | None = None

    def __init__(self, shards: Shards, *, max_sequence_length: int) -> None:
        """No data is read yet."""
        self._shards = shards
        self._tokens = TokenFiles(shards.tokens)
        self._max_length = check_positive("max_sequence_length", max_sequence_length)
        end = shards.end_of_text
        self._num_marks = 0 if end is None else 1
        # An end-of-text id before a document is moved to its end. An id after the document is already in place.
        self._moved_mark = end.id if end is not None and end.position == "before" else None

    @property
    def num_sequences(self) -> int:
        """Number of documents that have a token."""
        return len(self.lengths_N)

    @cached_property
    def lengths_N(self) -> NDArray[np.int64]:
        """Length of each sequence."""
        return _read_only(np.minimum(self._full_lengths_N, self._max_length))

    @cached_property
    def num_tokens(self) -> int:
        """Sum of all lengths."""
        return int(self.lengths_N.sum())

    @property
    def source_bytes(self) -> int | None:
        """Bytes of the texts; None if some were truncated."""
        was_cut = int(self._full_lengths_N.max(initial=0)) > self._max_length
        return None if was_cut else self._shards.source_bytes

    def read(self, index: int) -> NDArray[Any]:
        """Return the ids of sequence `index`."""
        begin, length = int(self._begins_N[index]), int(self.lengths_N[index])
        if self._moved_mark is None:
            return self._tokens.stretch(begin, begin + length)
        if length < self._full_lengths_N[index]:
            return self._tokens.stretch(begin + 1, begin + 1 + length)
        ids = self._tokens.stretch(begin + 1, begin + length)
        return np.append(ids, ids.dtype.type(self._moved_mark))

    def place(self, index: int, position: int) -> str:
        """Return the file and the position in it."""
        return self._tokens.place(int(self._begins_N[index]) + position + (self._moved_mark is not None))

    @property
    def _full_lengths_N(self) -> NDArray[np.int64]:
        return self._begins_and_lengths[1]

    @property
    def _begins_N(self) -> NDArray[np.int64]:
        return self._begins_and_lengths[0]

    @cached_property
    def _begins_and_lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start of each document that is not empty, and its length before truncation."""
        ends_D = self._shards.document_ends
        lengths_D = np.diff(ends_D, prepend=0)
        if len(ends_D) and (lengths_D.min() < 0 or ends_D[-1] > self._shards.num_tokens):
            raise ShardsFormatError(
                f"{self._shards!r}: an index is damaged: a document ends before its start or after the last token. "
                f"verify_shards() lists the damaged files."
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
    """Sequences stored one after another in a file of ids or vectors, as in the cache.

    train.bin        the ids (uint32), or the vectors (E float32 numbers each), little-endian
    train.ends.npy   the end of each sequence
    """

    source_bytes: int | None = None

    def __init__(
        self, folder: Path, split: str, *, kind: Kind, embedding_dim: int | None, max_sequence_length: int
    ) -> None:
        """No data is read yet. Sequences longer than max_sequence_length are truncated."""
        self.kind, self.embedding_dim = kind, embedding_dim
        self._folder, self._split = folder, split
        self._max_length = check_positive("max_sequence_length", max_sequence_length)

    @property
    def num_sequences(self) -> int:
        """Number of sequences, N."""
        return len(self._ends_N)

    @cached_property
    def lengths_N(self) -> NDArray[np.int64]:
        """Length of each sequence."""
        return _read_only(np.minimum(np.diff(self._ends_N, prepend=0), self._max_length))

    @cached_property
    def num_tokens(self) -> int:
        """Sum of all lengths, in ids or vectors."""
        return int(self.lengths_N.sum())

    def read(self, index: int) -> NDArray[Any]:
        """Return the ids or vectors of sequence `index`."""
        begin = int(self._ends_N[index - 1]) if index else 0
        items = np.frombuffer(
            self._file.read(begin * self._item_bytes, int(self.lengths_N[index]) * self._item_bytes),
            np.dtype("<u4" if self.embedding_dim is None else "<f4"),
        )
        return items if self.embedding_dim is None else items.reshape(-1, self.embedding_dim)

    def place(self, index: int, position: int) -> str:
        """Return the file, the sequence and the position in it."""
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
            remedy="The file belongs to the cache, which is rebuilt from the Parquet files. Resume from the last "
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
