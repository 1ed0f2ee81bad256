"""Text files: documents between separators, one per line, or one per file. Nothing is decoded, stripped or normalised.

A batch ends after the last separator that was read. If a document is longer than a batch, the document is cut at a
place where its ids or words are the same whatever follows.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus import batches
from gristmill.corpus.batches import Cut, Mark, Spans
from gristmill.corpus.inputs import Input
from gristmill.corpus.streams import open_stream
from gristmill.corpus.windows import Window, end_of_last
from gristmill.errors import CorpusError

if TYPE_CHECKING:
    from gristmill.corpus.options import Reading


@dataclass(slots=True)
class TextBatch:
    """Bytes of a text, and the separator of its documents."""

    mark: Mark
    next_mark: Mark
    position: int
    num_bytes: int
    buffer: NDArray[np.uint8]  # longer than the batch
    separator: bytes | None

    def spans(self) -> Spans:
        """Return the spans between separators."""
        continued, unfinished = self.mark.in_document, self.next_mark.in_document
        if self.separator is None:
            begins, ends = np.array([0], np.int64), np.array([self.num_bytes], np.int64)
        else:
            begins, ends = _core.split_spans(self.buffer[: self.num_bytes], self.separator)
            if not unfinished and begins[-1] == ends[-1]:  # nothing follows the last separator, which ends a document
                begins, ends = begins[:-1], ends[:-1]
        return Spans(self.buffer, begins, ends, continued=continued, unfinished=unfinished)


def read_text(
    input: Input, reading: Reading, *, cut: Cut, mark: Mark, end: Mark | None = None
) -> Generator[TextBatch, None, None]:
    """Yield the batches of a text file from `mark` to `end`."""
    separator = reading.end_of_document
    with open_stream(input, end.offset if end else None) as stream:
        stream.skip(mark.offset)
        window = Window(stream)
        while True:
            num_bytes, unfinished = _find_end(window, reading, cut, mark, input.shown)
            # With one document per file, an empty file is an empty document. Its end mark differs only in the line.
            is_empty_document = separator is None and mark == Mark()
            if num_bytes == 0 and not is_empty_document:
                return
            next_mark = Mark(mark.offset + num_bytes, 1 if separator is None else 0, unfinished)
            at_end = window.at_end
            if at_end and end is not None:
                next_mark = end
            buffer = window.take(num_bytes, room=batches.BATCH_BYTES)
            yield TextBatch(mark, next_mark, stream.position, num_bytes, buffer, separator)
            if at_end:
                return
            mark = next_mark


def _find_end(window: Window, reading: Reading, cut: Cut, mark: Mark, name: str) -> tuple[int, bool]:
    """Return where the next batch ends, and whether a document continues after it.

    The result depends only on the bytes after `mark`, so a reader that starts there finds the same.
    """
    separator = reading.end_of_document
    least = 1 if mark.in_document else batches.MIN_STRETCH_BYTES
    size = batches.BATCH_BYTES
    while True:
        text = window.fill(size)
        if window.at_end:
            return len(text), False
        end = 0 if separator is None else end_of_last(text, separator)
        if end:
            return end, False
        if cut is not None:
            # The last bytes may be the beginning of a separator: do not cut there.
            place = cut(text[: len(text) - len(separator or b"x") + 1])
            if place >= least:
                return place, True
        if size == reading.max_document_bytes:
            raise CorpusError(_too_long(name, mark, reading, can_be_cut=cut is not None))
        size = min(2 * size, reading.max_document_bytes)


def _too_long(name: str, mark: Mark, reading: Reading, *, can_be_cut: bool) -> str:
    what = "place to cut it" if can_be_cut else "end"
    options = f"documents={reading.documents!r}"
    if reading.documents == "separator":
        options += f" and separator={reading.separator!r}"
    return (
        f"{name}: the document at byte {mark.offset:,} has no {what} within max_document_bytes="
        f"{reading.max_document_bytes}. Pass a larger max_document_bytes, or check {options}."
    )
