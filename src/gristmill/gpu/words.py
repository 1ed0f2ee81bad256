"""Words in the memory of a GPU: what count makes there, and what merge starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gristmill._core import WordTable
from gristmill.gpu.driver import DeviceArray, Driver


@dataclass(frozen=True, slots=True)
class DeviceWords:
    """Distinct words with their counts. Word i has the bytes from offsets[i] to offsets[i + 1]."""

    bytes: DeviceArray  # uint8
    offsets: DeviceArray  # uint64, one more than words
    counts: DeviceArray  # uint64
    num_words: int
    num_bytes: int
    longest: int  # bytes of a word
    num_pieces: int  # the sum of the counts, or more
    is_in_order: bool  # of the first occurrences


def upload_words(driver: Driver, table: WordTable) -> DeviceWords:
    """Copy a table to the GPU."""
    offsets = table.offsets
    return DeviceWords(
        bytes=_uploaded(driver, table.data),
        offsets=_uploaded(driver, offsets),
        counts=_uploaded(driver, table.counts),
        num_words=len(table),
        num_bytes=int(offsets[-1]),
        longest=int(np.diff(offsets).max(initial=0)),
        num_pieces=table.total,
        is_in_order=True,
    )


def _uploaded(driver: Driver, values: NDArray[np.uint8] | NDArray[np.uint64]) -> DeviceArray:
    array = driver.arrays.empty(len(values), values.dtype)
    if len(values):
        driver.upload(array, values)
    return array
