"""Packages that only some inputs need, imported on first use."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from gristmill.packages import load_package


def load_pyarrow() -> Any:
    """Return pyarrow, for Parquet and Arrow."""
    return load_package("pyarrow", needed_by="a Parquet or Arrow file")


def load_fsspec() -> Any:
    """Return fsspec, for URLs."""
    return load_package("fsspec", needed_by="a URL")


def load_zstd() -> Any:
    """Return the zstd module of the standard library, or its backport for an older Python."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return load_package(name, needed_by="a .zst file")


def load_igzip() -> Any | None:
    """Return igzip, which decompresses several times faster than zlib; None if it is not installed."""
    try:
        return importlib.import_module("isal.igzip_lib")
    except ImportError:
        return None
