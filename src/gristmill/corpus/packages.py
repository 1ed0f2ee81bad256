"""Packages that only some inputs need, imported when the first such input is met."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from gristmill.packages import load_package


def load_pyarrow() -> Any:
    """pyarrow, for Parquet and Arrow."""
    return load_package("pyarrow", needed_by="a Parquet or Arrow file")


def load_fsspec() -> Any:
    """fsspec, for URLs."""
    return load_package("fsspec", needed_by="a URL")


def load_zstd() -> Any:
    """The zstd of the standard library, or the same for a Python that has none."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return load_package(name, needed_by="a .zst file")


def load_igzip() -> Any | None:
    """igzip, which unpacks several times faster than zlib; None where it is not installed, and zlib does it."""
    try:
        return importlib.import_module("isal.igzip_lib")
    except ImportError:
        return None
