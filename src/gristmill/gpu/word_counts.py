"""Chunks of text, counted into the table of one GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill._core import Counter, class_tables
from gristmill.gpu.chunks import Chunk
from gristmill.gpu.count_kernels import CountKernels
from gristmill.gpu.driver import DeviceArray, Driver
from gristmill.gpu.word_table import GrowingTable

NO_START = 0xFFFFFFFF
MAX_PART_BYTES = 64 << 20

# Of special tokens, in a search for overlaps that takes memory by the square of their lengths.
MOST_COMPARED_BYTES = 1 << 22


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
        self._pattern, self._special_tokens, self._num_threads = pattern, special_tokens, num_threads
        self._kernels = CountKernels(driver, pattern)
        self._state, self._sizes = self._kernels.state, self._kernels.sizes
        self._arrays = driver.arrays
        self._chunk: Chunk | None = None
        self._scratch: dict[str, DeviceArray] = {}
        self._parts: list[tuple[int, NDArray[np.uint8]]] = []  # texts that the host counts, with their positions
        self._num_part_bytes = self._num_host_pieces = 0
        self._prepare_classes()
        self._prepare_specials()
        self.table = GrowingTable(self._kernels, most_slots=most_slots)

    @property
    def num_pieces(self) -> int:
        return self._state["num_pieces"] + self._num_host_pieces

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
            self._kernels.launch("mark_specials", *self._specials)
            if self._may_overlap:
                state.download()
                if state["specials_overlap"]:
                    return
        if chunk.num_gaps:
            self._kernels.launch("mark_gaps")
        self._kernels.launch_tiles()

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
                self.table.make_room()
                state.upload()
                self._kernels.launch_tiles()
                state.download()
            if state["num_spans"]:
                self._keep_for_host(chunk, *self._spans())
        self.table.make_ready()

    def finish(self) -> None:
        """Finish all chunks."""
        self.settle()
        self._count_parts()

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
        self.table.add(table, table.firsts + moved[number].astype(np.uint64))

    def _prepare_classes(self) -> None:
        rows, classes = class_tables()
        self._class_rows, self._classes = (self._arrays.empty(len(part), part.dtype) for part in (rows, classes))
        self.driver.upload(self._class_rows, rows)
        self.driver.upload(self._classes, classes)
        self._kernels.launch_stateless("prepare_classes", self._classes, np.uint64(len(classes)))
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


def may_overlap(special_tokens: list[bytes]) -> bool:
    """Return whether two occurrences of special tokens can share bytes of a text."""
    specials = set(special_tokens)
    if sum(len(special) ** 2 for special in specials) > MOST_COMPARED_BYTES:
        return True  # the kernels look for overlaps in the text
    lengths = {len(special) for special in specials}
    proper_prefixes = {special[:size] for special in specials for size in range(1, len(special))}
    for special in specials:
        if any(special[-size:] in proper_prefixes for size in range(1, len(special))):
            return True
        for size in lengths:
            if size < len(special) and any(special[at : at + size] in specials for at in range(len(special))):
                return True
    return False
