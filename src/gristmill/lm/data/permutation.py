"""A shuffle that is never stored: where the item at each position comes from, computed from the position alone."""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

__all__ = ["derived_seed", "number_below", "permuted"]

NUM_ROUNDS = 6  # with 4, five items are not shuffled evenly; a thousand are with 2
_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: consecutive multiples lie far apart
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # the multipliers of splitmix64
_HALF = np.uint64(32)

Keys = tuple[np.uint64, ...]


def permuted(positions: NDArray[np.int64], size: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """For each position in 0 … size - 1 an item in 0 … size - 1: all positions together give every item once.

    A Feistel network over a table of about sqrt(size) rows and columns: each round turns every column by a hash of its
    number, then every row by a hash of its own. Turning is undone by turning back, so no two positions ever meet. The
    table has a few cells more than there are items; what lands in one of those goes through again until it lands on an
    item (cycle-walking), which keeps positions apart for the same reason.

    >>> sorted(permuted(np.arange(5), 5, seed=0, epoch=0).tolist())
    [0, 1, 2, 3, 4]
    """
    num_rows = isqrt(size - 1) + 1
    num_columns = -(-size // num_rows)
    keys = _round_keys(seed, epoch)
    items = _walk(positions.astype(np.uint64), num_rows, num_columns, keys)
    while len(outside := np.flatnonzero(items >= size)):
        items[outside] = _walk(items[outside], num_rows, num_columns, keys)
    return items.astype(np.int64)


def _walk(
    cells: NDArray[np.uint64], num_rows: int, num_columns: int, keys: tuple[np.uint64, ...]
) -> NDArray[np.uint64]:
    rows, columns = np.divmod(cells, np.uint64(num_columns))
    for row_key, column_key in zip(keys[::2], keys[1::2], strict=True):
        rows = _moved(rows, columns, np.uint64(num_rows), row_key)
        columns = _moved(columns, rows, np.uint64(num_columns), column_key)
    return rows * np.uint64(num_columns) + columns


def _moved(
    places: NDArray[np.uint64], others: NDArray[np.uint64], count: np.uint64, key: np.uint64
) -> NDArray[np.uint64]:
    """`places` in 0 … count - 1 moved round by a hash of the other coordinate."""
    hashes = (others ^ key) * _MIX_1
    hashes ^= hashes >> _HALF
    hashes *= _MIX_2
    hashes >>= _HALF
    # The upper half of 32 bits times count is uniform in 0 … count - 1, and much faster than a remainder.
    hashes *= count
    hashes >>= _HALF
    hashes += places
    hashes -= count * (hashes >= count)
    return hashes


def derived_seed(seed: int, number: int) -> int:
    """A seed for part `number` of something that has one seed."""
    return _mixed(_mixed(seed) ^ _mixed(number))


def number_below(limit: int, *, seed: int, epoch: int) -> int:
    """A number in 0 … limit - 1 for each seed and epoch, which the shuffle of that epoch does not depend on.

    >>> [number_below(256, seed=0, epoch=epoch) for epoch in range(4)]
    [134, 172, 53, 1]
    """
    return _mixed(derived_seed(seed, epoch)) * limit >> 64


@lru_cache(16)
def _round_keys(seed: int, epoch: int) -> Keys:
    """Two keys per round. Seed and epoch are mixed one after the other: seed 1, epoch 0 is not seed 0, epoch 1."""
    state = _mixed(_mixed(seed) + epoch)
    return tuple(np.uint64(_mixed(state + number)) for number in range(2 * NUM_ROUNDS))


def _mixed(value: int) -> int:
    """splitmix64: every bit of the result depends on every bit of `value`."""
    value = (value * _GOLDEN + _GOLDEN) & _MASK
    value = ((value ^ value >> 30) * int(_MIX_1)) & _MASK
    value = ((value ^ value >> 27) * int(_MIX_2)) & _MASK
    return value ^ value >> 31
