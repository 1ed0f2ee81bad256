"""The kernels of count.cu on one GPU, and the struct with all that they work on."""

from __future__ import annotations

from gristmill.gpu.driver import Driver
from gristmill.gpu.state import DeviceState
from gristmill.gpu.variants import count_sizes, load_count, shape_for

# The fields of CountState in kernels/count_state.cuh.
FIELDS = (
    "text", "size", "position", "gaps", "num_gaps", "no_text", "first_starts", "class_rows", "classes", "table",
    "table_mask", "hash_seed", "hash_multiplier", "cache", "arena", "arena_capacity", "spans", "num_tiles",
    "most_words", "most_arena", "stop_tile", "next_tile", "num_words", "arena_used", "num_pieces", "num_spans",
    "specials_overlap", "num_extracted",
)  # fmt: skip
THREADS = 256  # of a block of the small kernels


class CountKernels:
    """The module of one pattern, and `state`: the table and the chunk that it is launched with."""

    def __init__(self, driver: Driver, pattern: str) -> None:
        self.driver = driver
        self._module = load_count(driver, pattern)
        self.state = DeviceState(driver, FIELDS)
        self.sizes = count_sizes(driver, self._module)
        assert self.sizes.state_bytes == 8 * len(FIELDS), "the struct of the kernels has other fields"
        self._shape = shape_for(driver)
        self._tile_blocks = self._shape.tile_blocks * driver.num_multiprocessors
        self._blocks, self._threads = driver.num_multiprocessors * 8, min(THREADS, driver.most_threads)
        # A block takes a tile only if all words of the tiles in work have room.
        self.new_words_in_work = self._tile_blocks * (self.sizes.tile_bytes + self.sizes.bytes_after)

    def launch(self, kernel: str, *arguments: object) -> None:
        """Launch a kernel that works on the state."""
        self.launch_stateless(kernel, self.state.array, *arguments)

    def launch_stateless(self, kernel: str, *arguments: object) -> None:
        """Launch a kernel that works on its arguments alone."""
        self._module.launch(kernel, *arguments, blocks=self._blocks, threads=self._threads)

    def launch_tiles(self) -> None:
        """Count tiles of the chunk while the table has room."""
        self._module.launch(
            "count_tiles",
            self.state.array,
            blocks=self._tile_blocks,
            threads=self._shape.tile_threads,
            shared_bytes=self.sizes.shared_bytes,
        )
