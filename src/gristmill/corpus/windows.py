"""The part of a stream that is in memory: a buffer in which readers find the end of a batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus.streams import Stream

# Readable bytes after the text of a buffer, so that the core may load whole registers.
PADDING_BYTES = 64
# How far to search backwards for the last separator. Searching forwards is thirty times faster per byte.
NEAR_BYTES = 16 << 10


class Window:
    """The bytes of a stream from the start of the next batch."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._buffer = np.empty(0, np.uint8)
        self._size = 0  # bytes of the buffer that were read
        self._has_ended = False
        self.at_end = False  # the last result of `fill` is all that is left

    def fill(self, num_bytes: int) -> NDArray[np.uint8]:
        """Return the next `num_bytes`, or all that are left, and then set `at_end`.

        Reads one more byte, so that the end of the stream is detected when it is reached, not one batch later.
        """
        wanted = num_bytes + 1
        if self._size < wanted and not self._has_ended:
            if len(self._buffer) < wanted + PADDING_BYTES:
                self._move_to(np.empty(wanted + PADDING_BYTES, np.uint8), 0)
            got = self._stream.read(self._buffer.data[self._size : wanted])
            self._size += got
            self._has_ended = self._size < wanted
        self.at_end = self._has_ended and self._size <= num_bytes
        return self._buffer[: min(self._size, num_bytes)]

    def take(self, num_bytes: int, *, room: int) -> NDArray[np.uint8]:
        """Return the buffer, whose first `num_bytes` are the batch, and move the rest to a new one with `room` bytes.

        The returned buffer belongs to the caller and is not written to again.
        """
        taken = self._buffer
        if 4 * num_bytes < len(taken):  # otherwise thousands of small files would keep a large buffer each
            taken = taken[: num_bytes + PADDING_BYTES].copy()
        size = max(self._size - num_bytes, room + 1)
        self._move_to(np.empty(size + PADDING_BYTES, np.uint8), num_bytes)
        return taken

    def _move_to(self, buffer: NDArray[np.uint8], begin: int) -> None:
        self._size -= begin
        buffer[: self._size] = self._buffer[begin : begin + self._size]
        self._buffer = buffer


def end_of_last(text: NDArray[np.uint8], separator: bytes) -> int:
    """Return the end of the last separator, 0 if not found. Separators are found front to back and do not overlap.

    >>> end_of_last(np.frombuffer(b"a--b---c", np.uint8), b"--")
    6
    """
    if not overlaps_itself(separator):
        near = text[-NEAR_BYTES:]
        begin = _core.last_separator(near, separator)
        if begin >= 0:
            return len(text) - len(near) + begin + len(separator)
    return int(_core.split_spans(text, separator)[0][-1])


def overlaps_itself(separator: bytes) -> bool:
    """Whether two occurrences of a separator can overlap. If so, the last one cannot be found by searching backwards.

    >>> overlaps_itself(b"---"), overlaps_itself(b"<|endoftext|>")
    (True, False)
    """
    return any(separator[:length] == separator[-length:] for length in range(1, len(separator)))
