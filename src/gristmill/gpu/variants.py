"""The variants of the modules: macros for the kind of work, and for the shared memory that the blocks of a GPU have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # tools/build_cubins.py imports this module without NumPy and the core
    from gristmill.gpu.driver import Driver, Module

SYMBOLS = ("u16", "u32")
# The macro of each tie-break. The kernels of smallest_ids take the order of the bytes from the host.
TIE_BREAKS = {
    "greatest-bytes": "greatest_bytes",
    "smallest-ids": "smallest_ids",
    "huggingface": "smallest_ids",
    "first-seen": "first_seen",
}
PATTERNS = ("gpt2", "cl100k", "o200k", "llama3", "nanochat", "qwen2", "whitespace")


class Shape(NamedTuple):
    """The blocks of the large kernels."""

    shared_kib: int  # that a block of merge_rounds() can have
    tile_threads: int
    tile_segment: int  # bytes of a tile per thread
    tile_blocks: int  # that fit on a multiprocessor, where two blocks need 1 KiB more than their shared memory


# By the shared memory of a block: H100 and B200, A100, and all other GPUs.
SHAPES = (Shape(227, 512, 28, 2), Shape(163, 384, 20, 2), Shape(96, 512, 20, 1))


def shape_for(driver: Driver) -> Shape:
    """Return the shape of the blocks on a GPU."""
    shape = next(shape for shape in SHAPES if shape.shared_kib <= driver.shared_bytes >> 10)
    return shape._replace(tile_threads=min(shape.tile_threads, driver.most_threads))


def load_merge(driver: Driver, symbol: str, tie_break: str) -> Module:
    """Return the kernels of merge.cu for one type of symbols and one tie-break."""
    return driver.load("merge", **merge_defines(shape_for(driver), symbol, tie_break))


def load_count(driver: Driver, pattern: str) -> Module:
    """Return the kernels of count.cu for one pattern."""
    return driver.load("count", **count_defines(shape_for(driver), pattern))


def merge_defines(shape: Shape, symbol: str, tie_break: str) -> dict[str, str]:
    return {
        "GRISTMILL_SYMBOL": symbol,
        "GRISTMILL_TIE_BREAK": TIE_BREAKS[tie_break],
        "GRISTMILL_SHARED_KIB": str(shape.shared_kib),
    }


def count_defines(shape: Shape, pattern: str) -> dict[str, str]:
    return {
        "GRISTMILL_PATTERN": pattern,
        "GRISTMILL_TILE_THREADS": str(shape.tile_threads),
        "GRISTMILL_TILE_SEGMENT": str(shape.tile_segment),
    }


def all_variants(shape: Shape) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the source and the macros of every module for GPUs of one shape."""
    for symbol in SYMBOLS:
        for tie_break in ("greatest-bytes", "smallest-ids", "first-seen"):
            yield "merge", merge_defines(shape, symbol, tie_break)
    for pattern in PATTERNS:
        yield "count", count_defines(shape, pattern)


class MergeSizes(NamedTuple):
    """What merge.cu is compiled with."""

    state_bytes: int
    block_bytes: int  # of shared memory, before a bit per word of the block
    hot_log: int
    bins: int
    most_in_batch: int
    most_candidates: int


class CountSizes(NamedTuple):
    """What count.cu is compiled with."""

    state_bytes: int
    shared_bytes: int  # of a block of count_tiles()
    tile_bytes: int
    bytes_after: int  # a tile, that a block also loads
    cache_lines: int


def merge_sizes(driver: Driver, module: Module) -> MergeSizes:
    return MergeSizes(*_describe(driver, module, len(MergeSizes._fields)))


def count_sizes(driver: Driver, module: Module) -> CountSizes:
    return CountSizes(*_describe(driver, module, len(CountSizes._fields)))


def _describe(driver: Driver, module: Module, num: int) -> list[int]:
    sizes = driver.arrays.zeros(num, driver.arrays.uint64)
    module.launch("describe", sizes, blocks=1, threads=32)
    return [int(size) for size in driver.to_host(sizes)]
