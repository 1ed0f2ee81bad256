"""Documents of a corpus: any iterable of `str` and `bytes` -> batches of bytes, never more than one in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill.arguments import as_utf8
from gristmill.corpus import batches
from gristmill.corpus.batches import Mark, Spans

BATCH_BYTES = 16 << 20
MAX_DOCUMENTS = 1 << 16  # in a batch: millions of empty ones are not free


@dataclass(frozen=True)
class Documents:
    """Documents that are still to be read from an iterable, once."""

    items: Iterable[Any]

    def batches(self, batch_bytes: int = BATCH_BYTES) -> Iterator[list[bytes]]:
        r"""The documents as bytes, gathered in lists of about `batch_bytes`; a longer document is a list of its own.

        >>> list(Documents(["ab", b"cd", "é"]).batches(batch_bytes=4))
        [[b'ab', b'cd'], [b'\xc3\xa9']]
        """
        batch: list[bytes] = []
        room = batch_bytes
        for index, item in enumerate(self.items):
            document = item if isinstance(item, bytes) else as_utf8(item, f"document {index} of the corpus")
            if batch and (len(document) > room or len(batch) == MAX_DOCUMENTS):
                yield batch
                batch, room = [], batch_bytes
            batch.append(document)
            room -= len(document)
        if batch:
            yield batch

    def read_batches(self, batch_bytes: int | None = None) -> Iterator[DocumentBatch]:
        """The documents as readers of files give them; marks count documents."""
        mark, position = Mark(), 0
        for documents in self.batches(batch_bytes or batches.BATCH_BYTES):
            num_bytes = sum(map(len, documents))
            next_mark = Mark(mark.offset + len(documents))
            position += num_bytes
            yield DocumentBatch(mark, next_mark, position, num_bytes, documents)
            mark = next_mark


@dataclass(slots=True)
class DocumentBatch:
    """Some documents of an iterable."""

    mark: Mark
    next_mark: Mark
    position: int
    num_bytes: int
    documents: list[bytes]

    def spans(self) -> Spans:
        """The documents, end to end."""
        ends = np.cumsum([len(document) for document in self.documents], dtype=np.int64)
        begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        return Spans(b"".join(self.documents), begins, ends)
