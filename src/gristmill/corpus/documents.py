"""Batches of documents in memory: an iterable of `str` and `bytes`, or of rows with a text field."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill.arguments import as_utf8
from gristmill.corpus import batches
from gristmill.corpus.batches import Batch, Mark, Spans
from gristmill.errors import CorpusError

MAX_DOCUMENTS = 1 << 16  # per batch, because even millions of empty documents take memory
NUM_FIELDS_SHOWN = 20
# Options that apply if documents are a field of rows.
FIELD_OPTIONS = frozenset({"text_field"})


class DocumentStream(ABC):
    """Documents that can be read once, in order."""

    what: str  # for messages, such as "documents" or "a table"
    options: frozenset[str]  # those of `ReadOptions` that apply

    @abstractmethod
    def read_batches(self, batch_bytes: int | None = None) -> Iterator[Batch]:
        """Yield the documents in batches of about `batch_bytes`, like the readers of files. Marks count documents."""


@dataclass(frozen=True)
class TextStream(DocumentStream):
    """Texts of an iterable. At most one batch is in memory."""

    items: Iterable[Any]
    what: str = "documents"
    options: frozenset[str] = frozenset()
    has_nulls: bool = False  # None, NaN, NA and NaT are skipped and counted; otherwise they are errors

    def read_batches(self, batch_bytes: int | None = None) -> Iterator[Batch]:
        r"""Yield batches of about `batch_bytes`. A longer document is a separate batch.

        >>> [batch.documents for batch in TextStream(["ab", b"cd", "é"]).read_batches(batch_bytes=4)]
        [[b'ab', b'cd'], [b'\xc3\xa9']]
        """
        limit = room = batch_bytes or batches.BATCH_BYTES
        batch = DocumentBatch.after(None)
        for index, item in enumerate(self.items):
            if self.has_nulls and is_missing(item):
                batch.num_nulls += 1
                continue
            document = item if type(item) is bytes else as_utf8(item, f"document {index} of the corpus")
            if batch.documents and (len(document) > room or len(batch.documents) == MAX_DOCUMENTS):
                yield batch.closed()
                batch, room = DocumentBatch.after(batch), limit
            batch.documents.append(document)
            room -= len(document)
        if batch.documents or batch.num_nulls:
            yield batch.closed()


@dataclass(frozen=True)
class RowStream(DocumentStream):
    """Rows of an iterable. Each row is a dict with a text field."""

    rows: Iterable[Any]
    text_field: str
    what: str = "rows"
    options: frozenset[str] = FIELD_OPTIONS

    def read_batches(self, batch_bytes: int | None = None) -> Iterator[Batch]:
        return TextStream(self._texts(), has_nulls=True).read_batches(batch_bytes)

    def _texts(self) -> Iterator[Any]:
        for index, row in enumerate(self.rows):
            if not isinstance(row, Mapping):
                raise TypeError(
                    f"row {index} of the corpus is of type {type(row).__name__}, but the rows before it are dicts. "
                    f"Pass only dicts."
                )
            if self.text_field not in row:
                types = {name: isinstance(value, str) for name, value in row.items()}
                raise CorpusError(f"row {index} of the corpus: {explain_missing('field', self.text_field, types)}")
            text = row[self.text_field]
            yield text if is_missing(text) else as_utf8(text, f"field {self.text_field!r} of row {index} of the corpus")


@dataclass(slots=True)
class DocumentBatch:
    """Some documents of an iterable."""

    mark: Mark
    next_mark: Mark
    position: int
    num_bytes: int
    documents: list[bytes]
    num_nulls: int = 0

    @classmethod
    def after(cls, batch: DocumentBatch | None) -> DocumentBatch:
        """Return an empty batch that follows `batch`."""
        mark = Mark() if batch is None else batch.next_mark
        return cls(mark, mark, 0 if batch is None else batch.position, 0, [])

    def closed(self) -> DocumentBatch:
        """Complete the batch after its last document, and return it."""
        self.num_bytes = sum(map(len, self.documents))
        self.position += self.num_bytes
        self.next_mark = Mark(self.mark.offset + len(self.documents) + self.num_nulls)
        return self

    def spans(self) -> Spans:
        """Return the documents, one after the other."""
        ends = np.cumsum([len(document) for document in self.documents], dtype=np.int64)
        begins = np.concatenate([np.zeros(min(1, len(ends)), np.int64), ends[:-1]])
        return Spans(b"".join(self.documents), begins, ends, num_nulls=self.num_nulls)


def is_missing(value: object) -> bool:
    """Whether `value` is a missing value of a table: None, NaN, NA or NaT.

    >>> is_missing(float("nan")), is_missing("")
    (True, False)
    """
    if isinstance(value, str | bytes):
        return False
    if value is None or (isinstance(value, float) and value != value):
        return True
    return type(value).__name__ in ("NAType", "NaTType")


def explain_missing(what: str, name: str, fields: Mapping[Any, bool]) -> str:
    r"""Return the message for a missing field. `fields` are the existing ones, and whether they contain text.

    >>> explain_missing("column", "text", {"id": False, "body": True})
    'no column \'text\' (columns: \'id\', \'body\'). Pass text_field="body".'
    """
    names = list(fields)
    shown = ", ".join(map(repr, names[:NUM_FIELDS_SHOWN])) + ", …" * (len(names) > NUM_FIELDS_SHOWN)
    likely = next((field for field in names if fields[field] and isinstance(field, str)), "…")
    return f'no {what} {name!r} ({what}s: {shown or "none"}). Pass text_field="{likely}".'
