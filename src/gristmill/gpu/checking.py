"""The check of GRISTMILL_GPU_CHECK=1: after each launch, the table has exactly the pairs of the cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import DeviceError
from gristmill.gpu.driver import Driver
from gristmill.gpu.merge_run import MergeRun


def check_counts(driver: Driver, run: MergeRun) -> None:
    """Raise DeviceError if the counts of the table are not those of the words."""
    keys, counts, num_live = _count_again(driver, run)
    table = driver.to_host(run.arrays["table"]).reshape(-1, 2)
    found = table[table[:, 1] > 0]
    found = found[np.argsort(found[:, 0])]
    state = run.state
    if not np.array_equal(found[:, 0], keys) or not np.array_equal(found[:, 1], counts):
        different = set(map(tuple, found.tolist())) ^ set(zip(keys.tolist(), counts.tolist(), strict=True))
        key, count = min(different)
        left, right = (key - 1) & 0xFFFFFFFF, (key - 1) >> 32
        raise DeviceError(
            f"after {state['num_merges']:,} merges, {len(different):,} counts of pairs differ between the words and "
            f"the table of {driver.name}, such as {count:,} for ({left}, {right}). Report this as a bug of Gristmill."
        )
    for name, expected in (("num_entries", np.count_nonzero(table[:, 0])), ("num_live", num_live)):
        if state[name] != expected:
            raise DeviceError(
                f"after {state['num_merges']:,} merges, {name} is {state[name]:,} on {driver.name}, and should be "
                f"{expected:,}. Report this as a bug of Gristmill."
            )


def _count_again(driver: Driver, run: MergeRun) -> tuple[NDArray[np.uint64], NDArray[np.uint64], int]:
    """Return the keys of the pairs in the cells in ascending order, their counts, and the number of live cells."""
    arrays = {name: driver.to_host(array) for name, array in run.arrays.items() if name.startswith("words")}
    token_lengths = driver.to_host(run.arrays["lengths"]).astype(np.int64)
    keys, weights = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    num_live = 0
    for first_cell, first_word, num_words, _, num_region_live, buffer in run.regions().tolist():
        words = slice(first_word, first_word + num_words)
        lengths = arrays[f"words{buffer}_lengths"][words].astype(np.int64)
        starts = arrays[f"words{buffer}_starts"][words].astype(np.int64)
        if lengths.sum() + num_words != num_region_live:
            raise DeviceError(
                f"the cells of a block of {driver.name} are not those of its words. Report this as a bug."
            )
        num_live += num_region_live
        # Of every word, all cells but the last.
        num_pairs = lengths - 1
        first_pairs = np.cumsum(num_pairs) - num_pairs
        places = first_cell + np.repeat(starts - first_pairs, num_pairs) + np.arange(num_pairs.sum())
        cells = arrays[f"words{buffer}_cells"]
        left, right = cells[places].astype(np.int64), cells[places + 1].astype(np.int64)
        is_short = token_lengths[left] + token_lengths[right] <= run.state["max_token_bytes"]
        key = (right << 32 | left) + 1
        keys.append(key[is_short].astype(np.uint64))
        weights.append(np.repeat(arrays[f"words{buffer}_weights"][words], num_pairs)[is_short])
    unique, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    counts = np.zeros(len(unique), np.uint64)
    np.add.at(counts, inverse, np.concatenate(weights))
    return unique, counts, num_live
