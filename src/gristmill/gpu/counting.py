"""count: texts -> a word table in the memory of the GPU.

Readers fill the slots of a ring in pinned memory (`TextRing`). This thread copies slot after slot into chunks in the
memory of the GPU, which end where a text may be cut. A chunk is counted while the next one is copied. With several
GPUs, the chunks take turns.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gristmill._core import Counter, TextRing, WordTable
from gristmill.corpus.batches import MIN_REACH
from gristmill.gpu.chunks import ChunkPair
from gristmill.gpu.driver import Driver, Event
from gristmill.gpu.spilled import SpilledTables
from gristmill.gpu.word_counts import WordCounts
from gristmill.gpu.words import DeviceWords, upload_words
from gristmill.progress import OnProgress

if TYPE_CHECKING:
    from gristmill._core import Buffer

SLOT_BYTES = 4 << 20
RING_BYTES = 64 << 20
# Enough to read from the page cache as fast as the bus copies.
MAX_READERS = 12
# Copies that run while the readers fill the other slots.
MAX_COPIES = 3
# The first chunk is small: the words that it has often are counted in shared memory from then on.
FIRST_CHUNK_BYTES = 16 << 20
CHUNK_BYTES = 64 << 20
PROGRESS_SECONDS = 0.1


class DeviceTable:
    """Counted words in the memory of a GPU, where the merge stage uses them."""

    def __init__(
        self, driver: Driver, num_words: int, words: Callable[[], DeviceWords], to_host: Callable[[], WordTable]
    ) -> None:
        self.driver = driver
        self._num_words = num_words
        self._words, self._to_host = words, to_host

    def __len__(self) -> int:
        return self._num_words

    @cached_property
    def words(self) -> DeviceWords:
        """The words for the merge stage, in no particular order."""
        with self.driver.active():
            return self._words()

    @cached_property
    def _table(self) -> WordTable:
        with self.driver.active():
            return self._to_host()

    def to_host(self) -> WordTable:
        """Return the table that the CPU would have made."""
        return self._table


class GpuCounter:
    """Counts pieces on GPUs, with the methods of `_core.Counter`. The caller has made the GPUs `active()`."""

    def __init__(
        self,
        drivers: Sequence[Driver],
        *,
        pattern: str,
        special_tokens: Sequence[bytes],
        num_threads: int,
        min_frequency: int = 1,
        on_progress: OnProgress | None = None,
        most_slots: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        slot_bytes: int = SLOT_BYTES,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        """Prepare to count.

        Args:
            drivers: The GPUs. The table is joined on the first one.
            pattern: Name of a native pattern.
            special_tokens: Boundaries that no piece crosses, in UTF-8.
            num_threads: Number of threads that read.
            min_frequency: Drop words that occur fewer times than this.
            on_progress: Receives (stage, done, total).
            most_slots: Number of slots that a table may have; for tests.
            chunk_bytes: Size of a chunk; for tests.
            slot_bytes: Size of a slot of the ring; for tests.
            ring_bytes: Size of the ring; for tests.
        """
        self._start = time.perf_counter()
        self._is_over = False
        self._min_frequency = min_frequency
        self._on_progress = on_progress
        self._num_readers = min(num_threads, MAX_READERS)
        self._chunk_bytes, self._slot_bytes = chunk_bytes, slot_bytes
        self._last_report = 0.0
        self._position = 0  # in the corpus, gaps not counted
        self._cutter = Counter(pattern=pattern, special_tokens=special_tokens, num_threads=1)
        self._reach = max([MIN_REACH, *map(len, special_tokens)])
        self._gpus = []
        for driver in drivers:
            with driver.active():
                chunks = ChunkPair(driver, chunk_bytes + 2 * slot_bytes)
                counts = WordCounts(  # takes its share of the memory that is left
                    driver,
                    pattern=pattern,
                    special_tokens=list(special_tokens),
                    num_threads=num_threads,
                    most_slots=most_slots,
                )
                self._gpus.append(_Gpu(driver, chunks, counts))
        self._memory = drivers[0].make_pinned(ring_bytes)
        self._most_copies = min(MAX_COPIES, ring_bytes // slot_bytes - 1)
        self._turn = 0
        self._chunk_limit = min(FIRST_CHUNK_BYTES, chunk_bytes)

    def add_files(self, names: Sequence[str | bytes | PathLike[str]]) -> None:
        """Count files. The bytes are read as they are."""
        with self._open():
            ring = TextRing.of_files(names, self._memory, slot_bytes=self._slot_bytes, num_readers=self._num_readers)
            self._add(ring, len(names))

    def add_spans(self, text: Buffer, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Count texts in memory: text[begin:end] for each pair."""
        with self._open():
            ring = TextRing.of_spans(
                text, begins, ends, self._memory, slot_bytes=self._slot_bytes, num_readers=self._num_readers
            )
            self._add(ring, len(begins))

    def last_cut(self, text: Buffer, start: int = 0) -> int:
        """Return a position after `start`, near the end, where `text` may be cut whatever text follows, or 0."""
        return self._cutter.last_cut(text, start)

    def finish(self) -> tuple[DeviceTable, dict[str, Any]]:
        """Return the table and the figures that `_core.Counter.finish` returns."""
        with self._open():
            self._close_chunk()
            for gpu in self._gpus:
                with self._current(gpu):
                    gpu.counts.finish()
            counted = time.perf_counter()
            num_pieces = sum(gpu.counts.num_pieces for gpu in self._gpus)
            self._join()
            num_spilled = self._num_spilled()
            table, num_words = self._joined_on_host() if num_spilled else self._joined(num_pieces)
            figures = {
                "source_bytes": self._position,
                "num_pieces": num_pieces,
                "num_words": num_words,
                "num_spilled_runs": num_spilled,
                "count_seconds": counted - self._start,
                "join_seconds": time.perf_counter() - counted,
            }
        self._is_over = True
        self._gpus.clear()  # the words remain, but not the memory of the chunks
        return table, figures

    @contextmanager
    def _open(self) -> Generator[None, None, None]:
        """After an error, the counter has only a part of the texts and cannot be used again."""
        if self._is_over:
            raise ValueError("this counter has finished or failed. Create a new one.")
        try:
            yield
        except BaseException:
            self._is_over = True
            for gpu in self._gpus:
                gpu.counts.table.spilled.close()
            raise

    def _add(self, ring: TextRing, num_texts: int) -> None:
        copies: deque[list[Event]] = deque()  # by slot
        total, before = ring.num_bytes - num_texts, self._position
        try:
            while (slot := ring.next()) is not None:
                begin, size, gaps = slot
                copies.append([])
                self._take(self._memory[begin : begin + size], gaps.astype(np.int64), copies[-1])
                while copies and (len(copies) > self._most_copies or all(copy.is_done() for copy in copies[0])):
                    _wait(copies.popleft())
                    ring.release()
                self._report(self._position - before, total)
        finally:
            try:
                # The readers of the next ring write to the same memory.
                for events in copies:
                    _wait(events)
            finally:
                ring.close()

    def _take(self, text: NDArray[np.uint8], gaps: NDArray[np.int64], copies: list[Event]) -> None:
        """Copy a slot to the chunk, or its first part, and the rest to the next chunk."""
        cut = 0
        if self._gpus[self._turn].chunks.filling.size + len(text) > self._chunk_limit:
            cut = self._cut_of(text, gaps)
        num_gaps = int(np.searchsorted(gaps, cut))
        if cut:
            self._append(text[:cut], gaps[:num_gaps], copies)
            self._close_chunk()
        if cut < len(text):
            self._append(text[cut:], gaps[num_gaps:] - cut, copies)

    def _cut_of(self, text: NDArray[np.uint8], gaps: NDArray[np.int64]) -> int:
        """Return the last place of a slot where a chunk may end, or 0."""
        after_gap = int(gaps[-1]) + 1 if len(gaps) else 0
        if after_gap == len(text):
            return after_gap
        # What precedes a slot in its text is not known: the slot may begin inside of a character or a special.
        return after_gap + self._cutter.last_cut(text[after_gap:], 0 if len(gaps) else self._reach)

    def _append(self, text: NDArray[np.uint8], gaps: NDArray[np.int64], copies: list[Event]) -> None:
        gpu = self._gpus[self._turn]
        self._position += len(text) - len(gaps)
        with self._current(gpu):
            copy = gpu.chunks.append(text, gaps)
        if copy is not None:
            copies.append(copy)

    def _close_chunk(self) -> None:
        gpu = self._gpus[self._turn]
        if gpu.chunks.filling.size == 0:
            return
        with self._current(gpu):
            gpu.counts.start(gpu.chunks.filling)
            gpu.chunks.swap()
        self._turn = (self._turn + 1) % len(self._gpus)
        self._gpus[self._turn].chunks.filling.restart(self._position)
        if self._turn == 0:
            self._chunk_limit = self._chunk_bytes

    def _current(self, gpu: _Gpu) -> AbstractContextManager[None]:
        return gpu.driver.active() if len(self._gpus) > 1 else nullcontext()

    def _report(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._on_progress is not None and (now - self._last_report > PROGRESS_SECONDS or done == total):
            self._last_report = now
            self._on_progress("count", done, total)

    def _join(self) -> None:
        """Add the words of all GPUs to the table of the first one, or, if it has no room, spill all of them."""
        first, *others = self._gpus
        for other in others:
            if self._num_spilled():
                break
            with self._current(other):
                table, _ = other.counts.table.to_host(1, self._position)
                other.counts.table.clear()
            with self._current(first):
                first.counts.table.add(table, table.firsts)
        if self._num_spilled():
            for gpu in self._gpus:
                with self._current(gpu):
                    gpu.counts.table.spill()

    def _num_spilled(self) -> int:
        return sum(len(gpu.counts.table.spilled) for gpu in self._gpus)

    def _joined(self, num_pieces: int) -> tuple[DeviceTable, int]:
        driver, counted, source_bytes = self._gpus[0].driver, self._gpus[0].counts.table, self._position
        words, num_words = counted.listed(self._min_frequency)
        num_listed = len(words.counts)
        counted.free()
        table = DeviceTable(
            driver,
            num_listed,
            lambda: DeviceWords(
                bytes=words.bytes,
                offsets=words.offsets,
                counts=words.counts,
                num_words=num_listed,
                num_bytes=len(words.bytes),
                longest=words.longest,
                num_pieces=num_pieces,
                is_in_order=False,
            ),
            lambda: counted.in_order(words, source_bytes),
        )
        return table, num_words

    def _joined_on_host(self) -> tuple[DeviceTable, int]:
        """Join the tables on disk."""
        spilled = SpilledTables()
        for gpu in self._gpus:
            spilled.take(gpu.counts.table.spilled)
        table, num_words = spilled.join(self._min_frequency, self._position)
        driver = self._gpus[0].driver
        return DeviceTable(driver, len(table), lambda: upload_words(driver, table), lambda: table), num_words


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU: its chunks, and its words."""

    driver: Driver
    chunks: ChunkPair
    counts: WordCounts


def _wait(events: list[Event]) -> None:
    for event in events:
        event.wait()
