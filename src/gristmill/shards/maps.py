"""Read-only memory maps of arrays in files."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.corpus.inputs import shown
from gristmill.errors import ShardsFormatError
from gristmill.small_files import open_regular

# A process may often open only 1,024 files, and before Python 3.13 each map counts as one.
MAX_OPEN_MAPS = 128


def map_array(path: Path, dtype: np.dtype[Any], length: int, *, offset: int = 0) -> NDArray[Any]:
    """Map the file at `path` read-only: `length` items from `offset` to its end.

    Raises `ShardsFormatError` if the size differs: accessing a map beyond the end of its file kills the process.
    """
    with open_regular(path, error=ShardsFormatError) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        expected = offset + length * dtype.itemsize
        if num_bytes != expected:
            raise ShardsFormatError(
                f"{shown(path)}: its size is {num_bytes:,} bytes, expected {expected:,}. "
                f"verify_shards({str(path.parent)!r}) lists the damaged files."
            )
        if length == 0:  # an empty file cannot be mapped
            return np.empty(0, dtype)
        if sys.version_info >= (3, 13):  # the map then needs no open file descriptor
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, trackfd=False)
        else:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, dtype, length, offset)


def map_opener(
    folder: Path,
    files: Sequence[str],
    lengths: Sequence[int],
    dtype: np.dtype[Any],
    *,
    offset: int = 0,
    check: Callable[[], None] | None = None,
) -> Callable[[int], NDArray[Any]]:
    """Return a function that maps file number i on first access and caches the map.

    offset: position of the first item in each file, in bytes.
    check: called after each attempt to open a file; raises if the folder no longer holds these files.
    """

    @lru_cache(MAX_OPEN_MAPS)
    def opened(number: int) -> NDArray[Any]:
        try:
            return map_array(folder / files[number], dtype, lengths[number], offset=offset)
        finally:
            if check is not None:
                check()

    return opened
