"""What is in memory of a stream: a buffer that readers look for the end of a batch in, and hand on as it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus.streams import Stream

# Readable bytes behind the text of a buffer, so that the core may look at whole registers of it.
PADDING_BYTES = 64
# How far the last separator is looked for from behind. The search from the front is thirty times faster.
NEAR_BYTES = 16 << 10


class Window:
    """The bytes of a stream from the beginning of the next batch on."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._buffer = np.empty(0, np.uint8)
        self._size = 0  # bytes of the buffer that were read
        self._has_ended = False
        self.at_end = False  # what `fill` gave last is all that is left

    def fill(self, num_bytes: int) -> NDArray[np.uint8]:
        """The next `num_bytes`, or all that are left: then `at_end` is set.

        One byte more is read, so that the end of the stream is known when it is reached and not one batch later.
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
        """The buffer, of which the first `num_bytes` are the batch; what follows moves to one with `room` for a batch.

        The buffer is the caller's from now on: nothing is written to it again.
        """
        taken = self._buffer
        if 4 * num_bytes < len(taken):  # thousands of small files would otherwise hold a large buffer each
            taken = taken[: num_bytes + PADDING_BYTES].copy()
        size = max(self._size - num_bytes, room + 1)
        self._move_to(np.empty(size + PADDING_BYTES, np.uint8), num_bytes)
        return taken

    def _move_to(self, buffer: NDArray[np.uint8], begin: int) -> None:
        self._size -= begin
        buffer[: self._size] = self._buffer[begin : begin + self._size]
        self._buffer = buffer


def behind_last(text: NDArray[np.uint8], separator: bytes) -> int:
    """The end of the last separator, 0 if there is none. Separators are found from front to back and do not overlap.

    >>> behind_last(np.frombuffer(b"a--b---c", np.uint8), b"--")
    6
    """
    if not overlaps_itself(separator):
        near = text[-NEAR_BYTES:]
        begin = _core.last_separator(near, separator)
        if begin >= 0:
            return len(text) - len(near) + begin + len(separator)
    return int(_core.split_spans(text, separator)[0][-1])


def overlaps_itself(separator: bytes) -> bool:
    """Whether the end of a separator can be the beginning of another: then the last is not found from behind.

    >>> overlaps_itself(b"---"), overlaps_itself(b"<|endoftext|>")
    (True, False)
    """
    return any(separator[:length] == separator[-length:] for length in range(1, len(separator)))
