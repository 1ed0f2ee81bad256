"""Packing of conversations of different lengths into rows of equal length, with little padding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.encode import Ragged
from gristmill.lm.data.permutation import permuted

__all__ = ["packed"]


def packed(lengths: NDArray[np.int64], row_length: int) -> Ragged:
    """Return rows of item numbers, each with a total length of at most `row_length`. No item may be longer.

    Items are placed longest first, each into the fullest row with room for it (best fit decreasing). Items of equal
    length are shuffled, so that neighbouring lines do not end up in one row.

    >>> packed(np.array([3, 8, 5, 2, 4]), 10).tolist()
    [[1, 3], [2, 4], [0]]
    """
    order = permuted(np.arange(len(lengths)), len(lengths), seed=0, epoch=0) if len(lengths) else lengths
    order = order[np.argsort(-lengths[order], kind="stable")]
    rows: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(row_length + 1)]  # rows by their free space
    rooms = 0  # bit n is set if a row has n free
    for item, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        fitting = rooms >> length
        if fitting:
            room = length + (fitting & -fitting).bit_length() - 1
            row = with_room[room].pop()
            rooms ^= (not with_room[room]) << room
        else:
            room, row = row_length, len(rows)
            rows.append([])
        rows[row].append(item)
        with_room[room - length].append(row)
        rooms |= 1 << (room - length)
    sizes = np.array([len(row) for row in rows], np.int64)
    items = np.array([item for row in rows for item in row], np.int64)
    return Ragged(items, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]))
