"""The words of one GPU: a table in its memory that grows, spills to disk, and is listed at the end."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gristmill._core import WordTable
from gristmill.gpu.count_kernels import CountKernels
from gristmill.gpu.driver import DeviceArray
from gristmill.gpu.spilled import SpilledTables

WORD_BYTES = 32
# The index of a list has 28 bits for a word and 36 bits for its first byte.
MAX_SLOTS = 1 << 28
MAX_ARENA_BYTES = 1 << 35
FIRST_ARENA_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class WordList:
    """The words of a table, in no particular order. All arrays are in the memory of the GPU."""

    bytes: DeviceArray
    offsets: DeviceArray
    counts: DeviceArray
    firsts: DeviceArray
    longest: int


class GrowingTable:
    """The words that kernels have counted. Words that the memory has no room for are `spilled`."""

    def __init__(self, kernels: CountKernels, *, most_slots: int | None = None) -> None:
        self.driver = kernels.driver
        self.spilled = SpilledTables()
        self._kernels, self._state = kernels, kernels.state
        self._arrays = self.driver.arrays
        self._new_words_in_work = kernels.new_words_in_work
        self._is_cache_chosen = False
        self._state["hash_seed"], self._state["hash_multiplier"] = draw_hash_keys()
        self._cache = self._arrays.zeros(kernels.sizes.cache_lines, np.uint64)
        self._state["cache"] = self._cache
        # While a table grows, there are two; while it is listed, the words are there a second and a third time.
        most_bytes = int(0.9 * self.driver.free_bytes())
        if most_slots is None:
            most_slots = min(MAX_SLOTS, 1 << max(most_bytes // (4 * WORD_BYTES), 1).bit_length() - 1)
        num_slots = 1 << (2 * self._new_words_in_work - 1).bit_length()
        self._most_slots = max(num_slots, most_slots)
        num_arena_bytes = max(FIRST_ARENA_BYTES, 4 * self._new_words_in_work)
        self._most_arena_bytes = max(num_arena_bytes, min(MAX_ARENA_BYTES, most_bytes // 8))
        self._use_arena(self._arrays.empty(num_arena_bytes, np.uint8))
        self._use_table(self._arrays.zeros((num_slots, WORD_BYTES // 8), np.uint64))

    def add(self, table: WordTable, firsts: NDArray[np.uint64]) -> None:
        """Add the words of a table with their first positions in the corpus."""
        num_words = len(table)
        if num_words == 0:
            return
        lengths = np.diff(table.offsets)
        num_arena_bytes = int(np.sum((lengths + np.uint64(15)) & ~np.uint64(7)))
        if not self._fits(num_words, num_arena_bytes):
            self.spilled.add(WordTable.from_counted(table.data, table.offsets, table.counts, firsts, 0))
            return
        self.make_room(num_words, num_arena_bytes)
        parts = []
        for values in (table.data, table.offsets, table.counts, firsts):
            parts.append(self._arrays.empty(len(values), values.dtype))
            self.driver.upload(parts[-1], values)
        self._state.upload()
        self._kernels.launch("add_words", *parts, np.uint64(num_words))
        self._state.download()

    def make_ready(self) -> None:
        """Prepare the table for the next chunk: grow it if it is half full, and choose its frequent words once."""
        if 2 * self._state["num_words"] > self._num_slots:
            self.make_room()
        elif not self._is_cache_chosen:
            self._choose_cached()

    def make_room(self, num_words: int = 0, num_arena_bytes: int = 0) -> None:
        """Grow the table and the arena for this many new words, and for those of a launch, or spill the words.

        The kernels learn of it with the next upload of the state.
        """
        state = self._state
        if not self._fits(state["num_words"] + num_words, state["arena_used"] + num_arena_bytes):
            self.spill()
        num_slots = self._slots_for(state["num_words"] + num_words)
        if num_slots > self._num_slots:
            self._grow(num_slots)
        needed = state["arena_used"] + num_arena_bytes + 3 * self._new_words_in_work
        if needed > state["arena_capacity"]:
            arena = self._arrays.empty(min(max(2 * state["arena_capacity"], needed), self._most_arena_bytes), np.uint8)
            arena[: state["arena_used"]] = self._arena[: state["arena_used"]]
            self._use_arena(arena)

    def _fits(self, num_words: int, num_arena_bytes: int) -> bool:
        """Return whether the memory has room for so many words, and those of a launch."""
        return (
            self._slots_for(num_words) <= self._most_slots
            and num_arena_bytes + 3 * self._new_words_in_work <= self._most_arena_bytes
        )

    def _slots_for(self, num_words: int) -> int:
        return max(self._num_slots, 1 << (2 * num_words + self._new_words_in_work - 1).bit_length())

    def spill(self) -> None:
        """Write the words to disk, and make the table empty."""
        if not self._state["num_words"]:
            return
        self.spilled.add(self.to_host(1, 0)[0])
        self.clear()

    def clear(self) -> None:
        """Make the table empty. The number of pieces stays."""
        self.driver.clear(self._table)
        self.driver.clear(self._cache)
        self._state["num_words"] = self._state["arena_used"] = 0
        self._is_cache_chosen = False

    def _grow(self, num_slots: int) -> None:
        old, num_old = self._table, self._num_slots
        self._use_table(self._arrays.zeros((num_slots, WORD_BYTES // 8), np.uint64))
        self._state.upload()
        self._kernels.launch("grow", old, np.uint64(num_old))
        self.driver.clear(self._cache)
        self._choose_cached()

    def _choose_cached(self) -> None:
        self._state.upload()
        self._kernels.launch("choose_cached")
        self._is_cache_chosen = True

    def _use_table(self, table: DeviceArray) -> None:
        self._table, self._num_slots = table, len(table)
        self._state["table"] = table
        self._state["table_mask"] = self._num_slots - 1
        self._state["most_words"] = self._num_slots - self._new_words_in_work - self._num_slots // 8

    def _use_arena(self, arena: DeviceArray) -> None:
        self._arena = arena
        self._state["arena"] = arena
        self._state["arena_capacity"] = len(arena)
        # A long word takes at most twice its size: a header, and up to 7 bytes after it.
        self._state["most_arena"] = len(arena) - 2 * self._new_words_in_work

    def listed(self, min_frequency: int) -> tuple[WordList, int]:
        """Return the words with at least this count, and the number of words with any count."""
        totals = self._arrays.zeros(4, np.uint64)
        self._state["num_extracted"] = 0
        self._state.upload()
        self._kernels.launch("measure", np.uint64(min_frequency), totals)
        num_words, num_bytes, longest, num_counted = self.driver.to_host(totals).tolist()
        words = WordList(
            self._arrays.empty(num_bytes, np.uint8),
            self._arrays.empty(num_words + 1, np.uint64),
            self._arrays.empty(num_words, np.uint64),
            self._arrays.empty(num_words, np.uint64),
            longest,
        )
        self.driver.upload(words.offsets[num_words:], np.array([num_bytes], np.uint64))
        self._kernels.launch("list", np.uint64(min_frequency), words.bytes, words.offsets, words.counts, words.firsts)
        return words, num_counted

    def free(self) -> None:
        """Give back the memory of the table. Words that were listed before can still be brought into order."""
        del self._table, self._arena, self._cache

    def to_host(self, min_frequency: int, source_bytes: int) -> tuple[WordTable, int]:
        """Return the same as `listed`, as a table of the core."""
        words, num_counted = self.listed(min_frequency)
        return self.in_order(words, source_bytes), num_counted

    def in_order(self, words: WordList, source_bytes: int) -> WordTable:
        """Return words in the order of their first occurrence, as a table of the core."""
        num_words = len(words.counts)
        if num_words == 0:
            no_bytes, no_numbers = np.array([], np.uint8), np.array([], np.uint64)
            return WordTable.from_counted(no_bytes, np.array([0], np.uint64), no_numbers, no_numbers, source_bytes)
        order = self._arrays.argsort(words.firsts).view(np.uint64)
        counts, firsts, sizes = (self._arrays.empty(num_words, np.uint64) for _ in range(3))
        self._kernels.launch_stateless(
            "order_sizes", words.offsets, words.counts, words.firsts, order, np.uint64(num_words), counts, firsts,
            sizes,
        )  # fmt: skip
        sizes = self.driver.to_host(sizes)
        host_offsets = np.zeros(num_words + 1, np.uint64)
        np.cumsum(sizes, out=host_offsets[1:])
        offsets = self._arrays.empty(num_words + 1, np.uint64)
        self.driver.upload(offsets, host_offsets)
        data = self._arrays.empty(len(words.bytes), np.uint8)
        self._kernels.launch_stateless(
            "order_bytes", words.bytes, words.offsets, order, np.uint64(num_words), data, offsets,
        )  # fmt: skip
        return WordTable.from_counted(
            self.driver.to_host(data),
            host_offsets,
            self.driver.to_host(counts),
            self.driver.to_host(firsts),
            source_bytes,
        )


def draw_hash_keys() -> tuple[int, int]:
    """Return random keys for the hash of a table, so that no text can be made to fill one part of it."""
    return int.from_bytes(os.urandom(8), "little") | 1, int.from_bytes(os.urandom(8), "little") | 1
