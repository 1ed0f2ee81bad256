"""npy: `train-00000.npy`, one-dimensional NumPy files, which `np.load(path, mmap_mode="r")` opens."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from gristmill.shards.layouts.layout import Layout


class NpyLayout(Layout):
    """A NumPy header of 128 bytes, then the tokens."""

    name = "npy"
    any_width = True
    header_bytes = 128

    def token_file(self, name: str, split: str, number: int) -> str:
        """`train-00000.npy`."""
        return f"{split}-{number:05}.npy"

    def header(self, num_tokens: int, dtype: np.dtype[Any]) -> bytes:
        """Return NumPy's header of version 1.0, which has 128 bytes for every one-dimensional array."""
        file = BytesIO()
        fields = {"descr": dtype.str, "fortran_order": False, "shape": (num_tokens,)}
        np.lib.format.write_array_header_1_0(file, fields)
        header = file.getvalue()
        if len(header) != self.header_bytes:
            raise RuntimeError(
                f"NumPy {np.__version__} writes a header of {len(header)} bytes, but {self.header_bytes} are reserved. "
                f"Use another version of NumPy, or format='gristmill'."
            )
        return header

    def how_to_read(self, path: str, dtype: np.dtype[Any]) -> str:
        """Return a call of `np.load`."""
        return f'np.load({path!r}, mmap_mode="r")'
