"""npy: `train-00000.npy`, real NumPy files, one-dimensional, to be opened with `np.load(path, mmap_mode="r")`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill.shards.layouts.layout import Layout

MAGIC = b"\x93NUMPY\x01\x00"  # version 1.0


class NpyLayout(Layout):
    """A NumPy header of 128 bytes, then the tokens."""

    name = "npy"
    summary = "NumPy files, opened by np.load"
    any_width = True
    header_bytes = 128

    def token_file(self, name: str, split: str, number: int) -> str:
        """`train-00000.npy`."""
        return f"{split}-{number:05}.npy"

    def header(self, num_tokens: int, dtype: np.dtype[Any]) -> bytes:
        """The header of version 1.0, filled up with spaces as the format has it."""
        text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({num_tokens},), }}"
        text_bytes = self.header_bytes - len(MAGIC) - 2
        return MAGIC + text_bytes.to_bytes(2, "little") + text.ljust(text_bytes - 1).encode("ascii") + b"\n"

    def how_to_read(self, path: str, dtype: np.dtype[Any]) -> str:
        """`np.load`."""
        return f'np.load({path!r}, mmap_mode="r")'
