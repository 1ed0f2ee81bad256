"""Chunks of text in the memory of a GPU: one is filled while the other one is counted."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import DeviceMemoryError
from gristmill.gpu.driver import DeviceArray, Driver, Event

MAX_CHUNK_BYTES = (1 << 32) - (1 << 20)


@dataclass(slots=True)
class Chunk:
    """A part of the stream of texts in the memory of the GPU. It begins and ends where a text may be cut."""

    text: DeviceArray
    position: int = 0  # of its first byte in the corpus, gaps not counted
    size: int = 0
    gaps: list[NDArray[np.int64]] = field(default_factory=list)
    num_gaps: int = 0
    copied: Event | None = None
    rest: list[NDArray[np.uint8]] = field(default_factory=list)  # its last bytes, if they do not fit in `text`

    def restart(self, position: int) -> None:
        """Make the chunk empty, for the text at this position."""
        self.position, self.size, self.gaps, self.num_gaps, self.copied, self.rest = position, 0, [], 0, None, []

    def all_gaps(self) -> NDArray[np.int64]:
        return np.concatenate([*self.gaps, np.array([], np.int64)])


class ChunkPair:
    """The two chunks of one GPU. Text is appended to the one that is `filling`."""

    def __init__(self, driver: Driver, capacity: int) -> None:
        self._driver = driver
        self.filling, self._other = (Chunk(driver.arrays.empty(capacity, np.uint8)) for _ in range(2))
        # Kernels of an earlier counter, which failed, may still write to the same memory.
        driver.let_copies_wait(driver.mark())

    def append(self, text: NDArray[np.uint8], gaps: NDArray[np.int64]) -> Event | None:
        """Start to copy text to the end of the chunk. Returns None if the text was copied at once."""
        chunk = self.filling
        begin, end = chunk.size, chunk.size + len(text)
        if len(gaps):
            chunk.gaps.append(gaps + begin)
            chunk.num_gaps += len(gaps)
        chunk.size = end
        if chunk.rest or (end > len(chunk.text) and not self._enlarge(chunk, begin, end)):
            chunk.rest.append(text.copy())
            return None
        chunk.copied = self._driver.copy_text(chunk.text[begin:end], text)
        return chunk.copied

    def _enlarge(self, chunk: Chunk, num_used: int, num_bytes: int) -> bool:
        """Make room for text that has no position where it may be cut. Returns False without room for it."""
        if num_bytes > MAX_CHUNK_BYTES:
            return False
        try:
            with self._driver.translated():
                text = self._driver.arrays.empty(min(2 * num_bytes, MAX_CHUNK_BYTES), np.uint8)
        except DeviceMemoryError:
            return False
        if chunk.copied is not None:
            chunk.copied.wait()
        text[:num_used] = chunk.text[:num_used]
        self._driver.let_copies_wait(self._driver.mark())
        chunk.text = text
        return True

    def swap(self) -> None:
        """Take the other chunk, which was counted before."""
        self.filling, self._other = self._other, self.filling
