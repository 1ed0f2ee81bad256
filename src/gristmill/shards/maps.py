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

# A process may have a thousand files open, and before Python 3.13 a map is one of them.
MAX_OPEN_MAPS = 128


def map_array(path: Path, dtype: np.dtype[Any], length: int, *, offset: int = 0) -> NDArray[Any]:
    """The `length` items that fill the file at `path` from `offset` to its end, as a read-only map.

    A file of another size is a `ShardsFormatError`: what lies behind the end of a file cannot be read through a map, it
    ends the process.
    """
    with path.open("rb") as file:
        num_bytes = os.fstat(file.fileno()).st_size
        expected = offset + length * dtype.itemsize
        if num_bytes != expected:
            raise ShardsFormatError(
                f"{shown(path)}: it has {num_bytes:,} bytes, and should have {expected:,}. "
                f"verify_shards({str(path.parent)!r}) lists the damaged files."
            )
        if length == 0:  # nothing cannot be mapped
            return np.empty(0, dtype)
        if sys.version_info >= (3, 13):  # a map then needs no open file, of which there may be only a thousand
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
    """A function that gives the map of file number i: opened when it is asked for, and kept while it is in use.

    offset: where the items begin in each file, in bytes.
    check: called after a file is opened, and after it could not be; raises if the folder no longer holds these files.
    """

    @lru_cache(MAX_OPEN_MAPS)
    def opened(number: int) -> NDArray[Any]:
        try:
            return map_array(folder / files[number], dtype, lengths[number], offset=offset)
        finally:
            if check is not None:
                check()

    return opened
