"""JSON Lines: one object per line with a text field. The core extracts the text without building the object."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus import batches
from gristmill.corpus.batches import Cut, Mark, Spans
from gristmill.corpus.formats.json_faults import FAULTS, explain_record, near
from gristmill.corpus.inputs import SKIP_ADVICE, Input
from gristmill.corpus.sources import open_source
from gristmill.corpus.streams import open_stream
from gristmill.corpus.windows import Window, end_of_last
from gristmill.errors import CorpusError, CorruptInputError

if TYPE_CHECKING:
    from gristmill.corpus.options import Reading


@dataclass(slots=True)
class JsonlBatch:
    """Complete lines."""

    mark: Mark
    next_mark: Mark
    position: int
    num_bytes: int
    buffer: NDArray[np.uint8]  # longer than the batch
    input: Input
    field: str
    counted_from: int  # the line numbers of the marks count from this offset

    def spans(self) -> Spans:
        """Return the texts of the lines. Raises CorpusError for the first line without a text."""
        lines = self.buffer[: self.num_bytes]
        texts, begins, ends, num_nulls, problem = _core.extract_json(lines, self.field.encode())
        if problem is not None:
            raise self._explain(*problem)
        return Spans(texts, begins, ends, num_nulls=num_nulls)

    def _explain(self, index: int, byte: int, kind: str) -> CorpusError:
        """Return the error for the line with this index in the batch, which is wrong at this byte.

        Raises InputChangedError if the line may be wrong only because the file was changed while it was read.
        """
        open_source(self.input).close()
        lines = self.buffer[: self.num_bytes]
        newlines = np.flatnonzero(lines == ord("\n"))
        begin = int(newlines[index - 1]) + 1 if index else 0
        line = lines[begin : int(newlines[index]) if index < len(newlines) else None]
        place = _place(self.input, self.mark.line + index, self.counted_from)
        if kind not in FAULTS:
            return CorpusError(f"{place}: {explain_record(line, self.field, kind, byte)}")
        return CorruptInputError(
            f"{place}: {FAULTS[kind]} at byte {byte} of the line{near(line, byte)}. Correct the file{SKIP_ADVICE}.",
            path=self.input.name,
            offset=self.position if self.input.compression else self.mark.offset + begin + byte,
        )


def read_jsonl(
    input: Input, reading: Reading, *, cut: Cut, mark: Mark, end: Mark | None = None
) -> Generator[JsonlBatch, None, None]:
    """Yield the batches of a file of JSON lines from `mark` to `end`. A line is never cut."""
    # A mark with line 0 after the beginning was found without counting the lines before it.
    counted_from = mark.offset if mark.line == 0 else 0
    with open_stream(input, end.offset if end else None) as stream:
        stream.skip(mark.offset)
        window = Window(stream)
        while num_bytes := _find_end(window, reading, mark, input, counted_from):
            at_end = window.at_end
            buffer = window.take(num_bytes, room=batches.BATCH_BYTES)
            num_lines = _core.count_newlines(buffer[:num_bytes])
            next_mark = Mark(mark.offset + num_bytes, mark.line + num_lines)
            yield JsonlBatch(
                mark, next_mark, stream.position, num_bytes, buffer, input, reading.text_field, counted_from
            )
            if at_end:
                return
            mark = next_mark


def _find_end(window: Window, reading: Reading, mark: Mark, input: Input, counted_from: int) -> int:
    """Return the end of the last complete line. The last line of a file needs no newline."""
    size = batches.BATCH_BYTES
    while True:
        text = window.fill(size)
        if window.at_end:
            return len(text)
        end = end_of_last(text, b"\n")
        if end:
            return end
        if size == reading.max_document_bytes:
            raise CorpusError(
                f"{_place(input, mark.line, counted_from)}: the line is longer than max_document_bytes={size:,}. "
                f"Pass a larger max_document_bytes, or check that the file has one JSON object per line."
            )
        size = min(2 * size, reading.max_document_bytes)


def _place(input: Input, index: int, counted_from: int) -> str:
    """Return the file name and line number, for messages. Counts the lines before `counted_from` first."""
    if counted_from:
        with open_stream(input, counted_from) as stream:
            block = np.empty(min(batches.BATCH_BYTES, counted_from), np.uint8)
            while num_bytes := stream.read(block.data):
                index += _core.count_newlines(block[:num_bytes])
    return f"{input.shown}:{index + 1}"
