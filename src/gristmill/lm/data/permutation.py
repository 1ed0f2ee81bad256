"""A shuffle that is computed, not stored: the item at each position depends only on the position, seed and epoch."""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

__all__ = ["derived_seed", "number_below", "permuted"]

NUM_ROUNDS = 6  # with 4, a shuffle of five items is not uniform; for a thousand items, 2 are enough
_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: consecutive multiples are far apart
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # the multipliers of splitmix64
_HALF = np.uint64(32)

Keys = tuple[np.uint64, ...]


def permuted(positions: NDArray[np.int64], size: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the items at these positions of a shuffle of 0 … size - 1.

    A Feistel network over a table of about sqrt(size) rows and columns. Each round rotates every column by a hash of
    its number, then every row by a hash of its number. A rotation is invertible, so different positions never collide.
    The table has a few more cells than there are items; a position that lands in an extra cell is permuted again until
    it lands on an item (cycle walking), which is invertible too.

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
    """Rotate `places` in 0 … count - 1 by a hash of the other coordinate."""
    hashes = (others ^ key) * _MIX_1
    hashes ^= hashes >> _HALF
    hashes *= _MIX_2
    hashes >>= _HALF
    # Multiplying 32 bits by count and taking the upper half is uniform in 0 … count - 1, and faster than a remainder.
    hashes *= count
    hashes >>= _HALF
    hashes += places
    hashes -= count * (hashes >= count)
    return hashes


def derived_seed(seed: int, number: int) -> int:
    """Return a seed for part `number` of an object with one seed."""
    return _mixed(_mixed(seed) ^ _mixed(number))


def number_below(limit: int, *, seed: int, epoch: int) -> int:
    """Return a number in 0 … limit - 1 for a seed and epoch, independent of the shuffle of that epoch.

    >>> [number_below(256, seed=0, epoch=epoch) for epoch in range(4)]
    [134, 172, 53, 1]
    """
    return _mixed(derived_seed(seed, epoch)) * limit >> 64


@lru_cache(16)
def _round_keys(seed: int, epoch: int) -> Keys:
    """Return two keys per round.

    Seed and epoch are mixed in sequence, so that seed 1, epoch 0 differs from seed 0, epoch 1.
    """
    state = _mixed(_mixed(seed) + epoch)
    return tuple(np.uint64(_mixed(state + number)) for number in range(2 * NUM_ROUNDS))


def _mixed(value: int) -> int:
    """splitmix64: every bit of the result depends on every bit of `value`."""
    value = (value * _GOLDEN + _GOLDEN) & _MASK
    value = ((value ^ value >> 30) * int(_MIX_1)) & _MASK
    value = ((value ^ value >> 27) * int(_MIX_2)) & _MASK
    return value ^ value >> 31
