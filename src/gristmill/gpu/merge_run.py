"""A merge run in the memory of a GPU: its arrays, its state, and the launches of its kernels."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.errors import DeviceMemoryError
from gristmill.gpu.driver import DeviceArray, Driver
from gristmill.gpu.state import DeviceState
from gristmill.gpu.variants import load_merge, merge_sizes
from gristmill.gpu.words import DeviceWords

# With more ids, symbols have 32 bits: 16 bits have two more values, for the ends of words and for what merges remove.
MOST_NARROW_IDS = 65534
LEAST_TABLE = 1 << 17  # entries of the table of pairs: more than there are pairs of bytes
BYTES_PER_TOKEN = 16  # to start with
THREADS = 256  # of a block of the small kernels

_WORD_ARRAYS = ("cells", "at_group", "starts", "lengths", "weights", "origins")
# The fields of MergeState in kernels/merge_state.cuh.
FIELDS = (
    *(f"words{buffer}_{name}" for buffer in (0, 1) for name in _WORD_ARRAYS),
    *("regions", "hits", "hit_bits", "table", "table_mask", "hash_multiplier", "hot_log", "bins", "greatest_births"),
    *("firsts", "merges", "counts", "prefixes", "lengths", "offsets", "bytes", "ranks"),
    *("num_wanted", "num_given", "max_token_bytes", "bytes_capacity"),
    *("num_merges", "num_bytes", "num_hot", "num_entries", "is_table_full", "threshold", "is_log_valid"),
    *("num_cells", "num_live", "round", "outcome", "num_refills", "num_cuts", "barrier"),
)
# first_cell, first_word, num_words, num_cells, num_live, buffer
REGION_FIELDS = 6
# Arrays that must be zero when the run starts. The kernels write the others before they read them.
_ZEROED = ("table", "bins", "greatest_births")


class Outcome(IntEnum):
    """Why a launch ended, as in kernels/merge_state.cuh."""

    RUNNING = 0
    COMPLETE = 1
    NO_PAIR = 2
    TABLE_FULL = 3
    BYTES_FULL = 4
    TIES = 5


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What to learn."""

    num_merges: int  # new ones
    tie_break: str
    max_token_bytes: int = 0  # 0: no limit
    given: NDArray[np.uint32] = field(default_factory=lambda: np.empty((0, 2), np.uint32))  # (n, 2)
    num_threads: int = 0  # of the CPU, if it learns the merges

    @property
    def num_ids(self) -> int:
        return 256 + len(self.given) + self.num_merges


class MergeRun:
    """The arrays and the state of a run. It starts with the words laid out as cells, and all pairs counted."""

    def __init__(self, driver: Driver, words: DeviceWords, task: MergeTask) -> None:
        self._driver = driver
        self._task = task
        self._symbol: type[np.unsignedinteger] = np.uint16 if task.num_ids <= MOST_NARROW_IDS else np.uint32
        self._symbol_bytes = np.dtype(self._symbol).itemsize
        self._module = load_merge(driver, f"u{8 * self._symbol_bytes}", task.tie_break)
        self._sizes = merge_sizes(driver, self._module)
        assert self._sizes.state_bytes == 8 * len(FIELDS), "FIELDS differ from MergeState"
        self._blocks = driver.num_multiprocessors
        self._threads = min(1024, driver.most_threads)
        self.state = DeviceState(driver, FIELDS)
        self.arrays: dict[str, DeviceArray] = {}
        self._allocate(words)
        self._fill()
        self._lay_out(words)

    def advance(self, most_rounds: int) -> Outcome:
        """Make up to this many rounds. Returns why they ended, and afterwards the state is that of the GPU."""
        state = self.state
        state["barrier"] = 0
        state.upload()
        shared_bytes = self._sizes.block_bytes + self._shared_hit_bytes
        self._launch("merge_rounds", state.array, np.uint32(most_rounds), shared_bytes=shared_bytes, together=True)
        state.download()
        return Outcome(state["outcome"])

    @property
    def num_learned(self) -> int:
        return max(0, self.state["num_merges"] - len(self._task.given))

    def merges(self) -> NDArray[np.uint32]:
        """Return the merges that were learned, without given ones."""
        begin = len(self._task.given)
        flat: NDArray[np.uint32] = self._driver.to_host(self.arrays["merges"])
        return flat.reshape(-1, 2)[begin : begin + self.num_learned].copy()

    def counts(self) -> NDArray[np.uint64]:
        """Return the count of each learned merge."""
        begin = len(self._task.given)
        counts: NDArray[np.uint64] = self._driver.to_host(self.arrays["counts"])
        return counts[begin : begin + self.num_learned].copy()

    def grow_table(self) -> bool:
        """Move the pairs to a larger table. Returns False if the GPU has no memory for it."""
        old, size = self.arrays["table"], self.state["table_mask"] + 1
        larger = size * (4 if size < 1 << 22 else 2)
        if larger > 1 << 31:  # entries have numbers of 32 bits
            return False
        try:
            with self._driver.translated():
                self.arrays["table"] = self._driver.arrays.zeros(2 * larger, np.uint64)
        except DeviceMemoryError:
            return False
        state = self.state
        state["table"] = self.arrays["table"]
        state["table_mask"] = larger - 1
        state["num_entries"] = state["is_table_full"] = state["is_log_valid"] = 0
        # The round is made again, perhaps with other candidates.
        self._upload("firsts", np.full(2 * self._sizes.most_candidates, ~np.uint64(0)))
        self._upload("greatest_births", np.zeros(2 * self._sizes.most_in_batch, np.uint64))
        state.upload()
        self._launch("grow", state.array, old, np.uint64(size), threads=THREADS)
        state.download()
        return True

    def grow_bytes(self) -> bool:
        """Give the bytes of the tokens more room. Returns False if the GPU, or a vocabulary, may not have more."""
        old, capacity = self.arrays["bytes"], self.state["bytes_capacity"]
        if capacity >= _core.MAX_VOCABULARY_BYTES:
            return False
        try:
            with self._driver.translated():
                self._set_bytes(min(2 * capacity, _core.MAX_VOCABULARY_BYTES))
        except DeviceMemoryError:
            return False
        self._upload("bytes", self._driver.to_host(old))
        return True

    def _allocate(self, words: DeviceWords) -> None:
        """Make the arrays of the run. Raises DeviceMemoryError before the first one if they do not fit."""
        plan = self._plan(words)
        needed = sum(num * np.dtype(kind).itemsize for num, kind in plan.values())
        free = self._driver.free_bytes()
        if needed > free:
            raise DeviceMemoryError(
                f"the merge stage needs {needed:,} bytes of the memory of {self._driver.name}, and {free:,} are free. "
                f"Stop other programs that use it, raise min_frequency, or pass device='cpu'."
            )
        for name, (num, kind) in plan.items():
            make = self._driver.arrays.zeros if name in _ZEROED else self._driver.arrays.empty
            self.arrays[name] = self.state[name] = make(num, kind)

    def _plan(self, words: DeviceWords) -> dict[str, tuple[int, type[np.unsignedinteger]]]:
        """Return the length and the type of each array."""
        sizes, num_words, num_ids = self._sizes, words.num_words + 1, self._task.num_ids
        # Between the cells of two blocks are at most 24 more, and a scan reads the first cells after the last one.
        num_cells = words.num_bytes + words.num_words + 24 * self._blocks + 64
        group = 16 // self._symbol_bytes
        plan: dict[str, tuple[int, type[np.unsignedinteger]]] = {}
        for buffer in (0, 1):
            one_buffer: dict[str, tuple[int, type[np.unsignedinteger]]] = {
                "cells": (num_cells, self._symbol),
                "at_group": (num_cells // group + 1, np.uint32),
                "starts": (num_words, np.uint32),
                "lengths": (num_words, np.uint32),
                "weights": (num_words, np.uint64),
                "origins": (num_words, np.uint32),
            }
            plan |= {f"words{buffer}_{name}": kind for name, kind in one_buffer.items()}
        return plan | {
            "regions": (REGION_FIELDS * self._blocks, np.uint64),
            "hits": (num_words, np.uint32),
            "table": (2 * _table_size(words.num_words), np.uint64),
            "hot_log": (sizes.hot_log, np.uint32),
            "bins": (sizes.bins, np.uint64),
            "greatest_births": (2 * sizes.most_in_batch, np.uint64),
            "firsts": (2 * sizes.most_candidates, np.uint64),
            "merges": (2 * (num_ids - 255), np.uint32),
            "counts": (num_ids - 255, np.uint64),
            "prefixes": (num_ids, np.uint64),
            "lengths": (num_ids, np.uint32),
            "offsets": (num_ids, np.uint64),
            "bytes": (min(BYTES_PER_TOKEN * num_ids, _core.MAX_VOCABULARY_BYTES), np.uint8),
            "ranks": (256, np.uint32),
        }

    def _fill(self) -> None:
        task, state = self._task, self.state
        all_bytes = np.arange(256)
        self._upload("prefixes", all_bytes.astype(np.uint64) << np.uint64(56))
        self._upload("lengths", np.ones(256, np.uint32))
        self._upload("offsets", all_bytes.astype(np.uint64))
        self._upload("bytes", all_bytes.astype(np.uint8))
        self._upload("ranks", _byte_ranks(task.tie_break))
        self._upload("firsts", np.full(2 * self._sizes.most_candidates, ~np.uint64(0)))
        if len(task.given):
            self._upload("merges", np.ascontiguousarray(task.given).reshape(-1))
        state["table_mask"] = len(self.arrays["table"]) // 2 - 1
        # Of this run, so that no text can be made to fill one part of the table.
        state["hash_multiplier"] = int.from_bytes(os.urandom(8), "little") | 1
        state["num_wanted"] = len(task.given) + task.num_merges
        state["num_given"] = len(task.given)
        state["max_token_bytes"] = task.max_token_bytes or 0xFFFFFFFF
        state["bytes_capacity"] = len(self.arrays["bytes"])
        state["num_bytes"] = 256
        state["threshold"] = 1

    def _lay_out(self, words: DeviceWords) -> None:
        state, byte_pairs = self.state, self._driver.arrays.zeros(65536, np.uint64)
        state.upload()
        arguments = (words.bytes, words.offsets, words.counts, np.uint64(words.num_words), byte_pairs)
        self._launch("lay_out", state.array, *arguments, shared_bytes=self._sizes.block_bytes)
        self._launch("enter_pairs", state.array, byte_pairs, threads=THREADS)
        state.download()
        regions = self.regions()
        self.num_symbols = state["num_live"] - int(regions[:, 2].sum())  # without the ends of words
        self._shared_hit_bytes = (int(regions[:, 2].max()) + 31) // 32 * 4
        if self._sizes.block_bytes + self._shared_hit_bytes > self._driver.shared_bytes:
            self._shared_hit_bytes = 0
            num = words.num_words // 32 + self._blocks + 1
            self.arrays["hit_bits"] = state["hit_bits"] = self._driver.arrays.empty(num, np.uint32)

    def regions(self) -> NDArray[np.uint64]:
        """Return the words of each block, one row per block."""
        regions: NDArray[np.uint64] = self._driver.to_host(self.arrays["regions"])
        return regions.reshape(-1, REGION_FIELDS)

    def _set_bytes(self, capacity: int) -> None:
        self.arrays["bytes"] = self.state["bytes"] = self._driver.arrays.empty(capacity, np.uint8)
        self.state["bytes_capacity"] = capacity

    def _upload(self, name: str, values: NDArray[np.unsignedinteger]) -> None:
        """Write the first elements of an array."""
        array = self.arrays[name]
        assert values.dtype == array.dtype
        self._driver.upload(array[: len(values)], values)

    def _launch(
        self,
        kernel: str,
        *arguments: DeviceArray,
        threads: int = 1024,
        shared_bytes: int = 0,
        together: bool = False,
    ) -> None:
        self._module.launch(
            kernel,
            *arguments,
            blocks=self._blocks,
            threads=min(threads, self._threads),
            shared_bytes=shared_bytes,
            together=together,
        )


def _table_size(num_words: int) -> int:
    """Return the number of entries to start with: text has about one pair per word, and a table is half empty."""
    return max(LEAST_TABLE, 1 << (2 * num_words - 1).bit_length() if num_words else 0)


def _byte_ranks(tie_break: str) -> NDArray[np.uint32]:
    """Return the place of each byte among the ids. Hugging Face numbers the bytes that are printable first."""
    places = np.arange(256)
    if tie_break == "huggingface":
        is_printable = (places >= 33) & (places <= 126) | (places >= 161) & (places <= 172) | (places >= 174)
        places = np.argsort(np.argsort(~is_printable, kind="stable"), kind="stable")
    return places.astype(np.uint32)
