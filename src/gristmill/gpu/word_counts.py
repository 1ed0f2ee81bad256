"""The words of one GPU: a table in its memory, and the chunks of text that are counted into it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gristmill._core import Counter, WordTable, class_tables
from gristmill.gpu.driver import DeviceArray, Driver, Event
from gristmill.gpu.spilled import SpilledTables
from gristmill.gpu.state import DeviceState
from gristmill.gpu.variants import count_sizes, load_count, shape_for

# The fields of CountState in kernels/count_state.cuh.
FIELDS = (
    "text", "size", "position", "gaps", "num_gaps", "no_text", "first_starts", "class_rows", "classes", "table",
    "table_mask", "hash_seed", "hash_multiplier", "cache", "arena", "arena_capacity", "spans", "num_tiles",
    "most_words", "most_arena", "stop_tile", "next_tile", "num_words", "arena_used", "num_pieces", "num_spans",
    "specials_overlap", "num_extracted",
)  # fmt: skip
WORD_BYTES = 32
NO_START = 0xFFFFFFFF
# The index of a list has 28 bits for a word and 36 bits for its first byte.
MAX_SLOTS = 1 << 28
MAX_ARENA_BYTES = 1 << 35
FIRST_ARENA_BYTES = 32 << 20
MAX_PART_BYTES = 64 << 20
MAX_CHUNK_BYTES = (1 << 32) - (1 << 20)
THREADS = 256  # of a block of the small kernels


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


@dataclass(frozen=True, slots=True)
class WordList:
    """The words of a table, in no particular order. All arrays are in the memory of the GPU."""

    bytes: DeviceArray
    offsets: DeviceArray
    counts: DeviceArray
    firsts: DeviceArray
    longest: int


class WordCounts:
    """Counts chunks on one GPU. Chunk after chunk: start(), then settle() before the text of the chunk is replaced."""

    def __init__(
        self,
        driver: Driver,
        *,
        pattern: str,
        special_tokens: list[bytes],
        num_threads: int,
        most_slots: int | None = None,
    ) -> None:
        self.driver = driver
        self.spilled = SpilledTables()
        self._pattern, self._special_tokens, self._num_threads = pattern, special_tokens, num_threads
        self._module = load_count(driver, pattern)
        self._arrays = driver.arrays
        self._state = DeviceState(driver, FIELDS)
        self._sizes = count_sizes(driver, self._module)
        assert self._sizes.state_bytes == 8 * len(FIELDS), "the struct of the kernels has other fields"
        self._shape = shape_for(driver)
        self._tile_blocks = self._shape.tile_blocks * driver.num_multiprocessors
        self._blocks, self._threads = driver.num_multiprocessors * 8, min(THREADS, driver.most_threads)
        self._chunk: Chunk | None = None
        self._scratch: dict[str, DeviceArray] = {}
        self._is_cache_chosen = False
        self._parts: list[tuple[int, NDArray[np.uint8]]] = []  # texts that the host counts, with their positions
        self._num_part_bytes = self._num_host_pieces = 0
        self._prepare_classes()
        self._prepare_specials()
        self._state["hash_seed"], self._state["hash_multiplier"] = draw_hash_keys()
        self._cache = self._arrays.zeros(self._sizes.cache_lines, np.uint64)
        self._state["cache"] = self._cache
        # A block takes a tile only if all words of the tiles in work have room.
        self._new_words_in_work = self._tile_blocks * (self._sizes.tile_bytes + self._sizes.bytes_after)
        self._prepare_table(most_slots)

    @property
    def num_words(self) -> int:
        return self._state["num_words"]

    @property
    def num_pieces(self) -> int:
        return self._state["num_pieces"] + self._num_host_pieces

    # A chunk

    def start(self, chunk: Chunk) -> None:
        """Start to count a chunk, after its copies and after the chunks before it."""
        self.settle()
        if chunk.copied is not None:
            self.driver.let_kernels_wait(chunk.copied)
        if chunk.rest:
            self._keep_for_host(chunk, np.array([0]), np.array([chunk.size]))
            return
        state = self._state
        state["text"], state["size"], state["position"] = chunk.text, chunk.size, chunk.position
        state["num_tiles"] = state["stop_tile"] = -(-chunk.size // self._sizes.tile_bytes)
        state["next_tile"] = state["num_spans"] = state["specials_overlap"] = 0
        state["first_starts"] = self._room("first_starts", state["num_tiles"], np.uint32)
        state["spans"] = self._room("spans", state["num_tiles"], np.uint64)
        state["num_gaps"] = chunk.num_gaps
        if chunk.num_gaps:
            gaps = self._room("gaps", chunk.num_gaps, np.uint32)
            self.driver.upload(gaps[: chunk.num_gaps], chunk.all_gaps().astype(np.uint32))
            state["gaps"] = gaps
        state["no_text"] = 0
        if chunk.num_gaps or self._special_tokens:
            state["no_text"] = self._room("no_text", chunk.size // 32 + 2, np.uint32)
            self.driver.clear(self._scratch["no_text"])
        state.upload()
        self._chunk = chunk
        if self._special_tokens:
            self._launch("mark_specials", *self._specials)
            if self._may_overlap:
                state.download()
                if state["specials_overlap"]:
                    return
        if chunk.num_gaps:
            self._launch("mark_gaps")
        self._launch_tiles()

    def settle(self) -> None:
        """Finish the chunk that was started last."""
        chunk, self._chunk = self._chunk, None
        if chunk is None:
            return
        state = self._state
        state.download()
        if state["specials_overlap"]:
            self._keep_for_host(chunk, np.array([0]), np.array([chunk.size]))
        else:
            while state["next_tile"] < state["num_tiles"]:
                self._make_room(0, 0)
                state.upload()
                self._launch_tiles()
                state.download()
            if state["num_spans"]:
                self._keep_for_host(chunk, *self._spans())
        if 2 * state["num_words"] > self._num_slots:
            self._make_room(0, 0)
        elif not self._is_cache_chosen:
            self._choose_cached()

    def finish(self) -> None:
        """Finish all chunks."""
        self.settle()
        self._count_parts()

    def _launch_tiles(self) -> None:
        self._module.launch(
            "count_tiles",
            self._state.array,
            blocks=self._tile_blocks,
            threads=self._shape.tile_threads,
            shared_bytes=self._sizes.shared_bytes,
        )

    # Text that the host counts

    def _spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the begins and ends of the parts of the chunk in which a piece does not fit in a tile."""
        state = self._state
        spans = self.driver.to_host(self._scratch["spans"][: state["num_spans"]])
        begins, tiles = (spans & 0xFFFFFFFF).astype(np.int64), (spans >> 32).astype(np.int64)
        first_starts = self.driver.to_host(self._scratch["first_starts"][: state["num_tiles"]])
        with_start = np.flatnonzero(first_starts != NO_START)
        after = np.searchsorted(with_start, tiles, side="right")
        starts = np.append(first_starts[with_start].astype(np.int64), state["size"])
        order = np.argsort(begins)
        return begins[order], starts[after][order]

    def _keep_for_host(self, chunk: Chunk, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Keep parts of the chunk for the core, which counts them together."""
        gaps = chunk.all_gaps()
        # A part ends at each gap in it, and another one begins after the gap.
        inside = gaps[np.searchsorted(ends, gaps, side="right") < np.searchsorted(begins, gaps, side="right")]
        begins, ends = np.sort(np.append(begins, inside + 1)), np.sort(np.append(ends, inside))
        first = int(begins[0])
        text = self._text_of(chunk, first, int(ends[-1]))
        positions = chunk.position + begins - np.searchsorted(gaps, begins)
        self._parts += [
            # A small part must not keep all of the text in memory.
            (position, text[begin:end] if end - begin > len(text) // 2 else text[begin:end].copy())
            for position, begin, end in zip(
                positions.tolist(), (begins - first).tolist(), (ends - first).tolist(), strict=True
            )
            if begin < end
        ]
        self._num_part_bytes += int(np.sum(ends - begins))
        if self._num_part_bytes > MAX_PART_BYTES:
            self._count_parts()

    def _text_of(self, chunk: Chunk, begin: int, end: int) -> NDArray[np.uint8]:
        if not chunk.rest:
            return self.driver.to_host(chunk.text[begin:end])
        num_on_gpu = chunk.size - sum(map(len, chunk.rest))
        return np.concatenate([self.driver.to_host(chunk.text[:num_on_gpu]), *chunk.rest])[begin:end]

    def _count_parts(self) -> None:
        """Count the parts that were kept, and add their words to the table."""
        parts, self._parts, self._num_part_bytes = self._parts, [], 0
        if not parts:
            return
        ends = np.cumsum([len(text) for _, text in parts])
        begins = np.append(0, ends[:-1])
        counter = Counter(pattern=self._pattern, special_tokens=self._special_tokens, num_threads=self._num_threads)
        counter.add_spans(np.concatenate([text for _, text in parts]), begins, ends)
        table, figures = counter.finish()
        self._num_host_pieces += figures["num_pieces"]
        # The core has counted positions over the parts, one after the other.
        moved = np.array([position for position, _ in parts]) - begins
        number = np.searchsorted(ends, table.firsts.astype(np.int64), side="right")
        self.add(table, table.firsts + moved[number].astype(np.uint64))

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
        self._make_room(num_words, num_arena_bytes)
        parts = []
        for values in (table.data, table.offsets, table.counts, firsts):
            parts.append(self._arrays.empty(len(values), values.dtype))
            self.driver.upload(parts[-1], values)
        self._state.upload()
        self._launch("add_words", *parts, np.uint64(num_words))
        self._state.download()

    # The table

    def _make_room(self, num_words: int, num_arena_bytes: int) -> None:
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
        self.spilled.add(self.table(1, 0)[0])
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
        self._launch("grow", old, np.uint64(num_old))
        self.driver.clear(self._cache)
        self._choose_cached()

    def _choose_cached(self) -> None:
        self._state.upload()
        self._launch("choose_cached")
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

    # The result

    def listed(self, min_frequency: int) -> tuple[WordList, int]:
        """Return the words with at least this count, and the number of words with any count."""
        totals = self._arrays.zeros(4, np.uint64)
        self._state["num_extracted"] = 0
        self._state.upload()
        self._launch("measure", np.uint64(min_frequency), totals)
        num_words, num_bytes, longest, num_counted = self.driver.to_host(totals).tolist()
        words = WordList(
            self._arrays.empty(num_bytes, np.uint8),
            self._arrays.empty(num_words + 1, np.uint64),
            self._arrays.empty(num_words, np.uint64),
            self._arrays.empty(num_words, np.uint64),
            longest,
        )
        self.driver.upload(words.offsets[num_words:], np.array([num_bytes], np.uint64))
        self._launch("list", np.uint64(min_frequency), words.bytes, words.offsets, words.counts, words.firsts)
        return words, num_counted

    def free(self) -> None:
        """Give back the memory of the table. Words that were listed before can still be brought into order."""
        del self._table, self._arena, self._cache
        self._scratch.clear()

    def table(self, min_frequency: int, source_bytes: int) -> tuple[WordTable, int]:
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
        self._module.launch(
            "order_sizes", words.offsets, words.counts, words.firsts, order, np.uint64(num_words), counts, firsts,
            sizes, blocks=self._blocks, threads=self._threads,
        )  # fmt: skip
        sizes = self.driver.to_host(sizes)
        host_offsets = np.zeros(num_words + 1, np.uint64)
        np.cumsum(sizes, out=host_offsets[1:])
        offsets = self._arrays.empty(num_words + 1, np.uint64)
        self.driver.upload(offsets, host_offsets)
        data = self._arrays.empty(len(words.bytes), np.uint8)
        self._module.launch(
            "order_bytes", words.bytes, words.offsets, order, np.uint64(num_words), data, offsets,
            blocks=self._blocks, threads=self._threads,
        )  # fmt: skip
        return WordTable.from_counted(
            self.driver.to_host(data),
            host_offsets,
            self.driver.to_host(counts),
            self.driver.to_host(firsts),
            source_bytes,
        )

    # Preparations

    def _prepare_table(self, most_slots: int | None) -> None:
        """Make a small table and arena, and decide how much they may grow."""
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

    def _prepare_classes(self) -> None:
        rows, classes = class_tables()
        self._class_rows, self._classes = (self._arrays.empty(len(part), part.dtype) for part in (rows, classes))
        self.driver.upload(self._class_rows, rows)
        self.driver.upload(self._classes, classes)
        self._module.launch(
            "prepare_classes", self._classes, np.uint64(len(classes)), blocks=self._blocks, threads=self._threads
        )
        self._state["class_rows"], self._state["classes"] = self._class_rows, self._classes

    def _prepare_specials(self) -> None:
        """Give the specials to the kernels, the longest first."""
        self._may_overlap = may_overlap(self._special_tokens)
        specials = sorted(self._special_tokens, key=len, reverse=True)
        first_bytes = np.zeros(8, np.uint32)
        for special in specials:
            first_bytes[special[0] // 32] |= np.uint32(1 << special[0] % 32)
        parts = (
            np.frombuffer(b"".join(specials) or b"\0", np.uint8),
            np.cumsum([0, *map(len, specials)], dtype=np.uint32),
            first_bytes,
        )
        self._specials: list[DeviceArray | np.uint32] = []
        for part in parts:
            self._specials.append(self._arrays.empty(len(part), part.dtype))
            self.driver.upload(self._specials[-1], part)
        self._specials.append(np.uint32(len(specials)))

    def _room(self, name: str, size: int, kind: type) -> DeviceArray:
        """Return an array with room for `size` values, which chunks share."""
        if name not in self._scratch or len(self._scratch[name]) < size:
            self._scratch[name] = self._arrays.empty(size + size // 8, kind)
        return self._scratch[name]

    def _launch(self, kernel: str, *arguments: object) -> None:
        self._module.launch(kernel, self._state.array, *arguments, blocks=self._blocks, threads=self._threads)


def draw_hash_keys() -> tuple[int, int]:
    """Return random keys for the hash of a table, so that no text can be made to fill one part of it."""
    return int.from_bytes(os.urandom(8), "little") | 1, int.from_bytes(os.urandom(8), "little") | 1


def may_overlap(special_tokens: list[bytes]) -> bool:
    """Return whether two occurrences of special tokens can share bytes of a text."""
    specials = set(special_tokens)
    lengths = {len(special) for special in specials}
    proper_prefixes = {special[:size] for special in specials for size in range(1, len(special))}
    for special in specials:
        if any(special[-size:] in proper_prefixes for size in range(1, len(special))):
            return True
        for size in lengths:
            if size < len(special) and any(special[at : at + size] in specials for at in range(len(special))):
                return True
    return False
