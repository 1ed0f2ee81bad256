"""Packages that only some inputs need, imported when the first such input is met."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from gristmill.errors import CorpusError


def load_pyarrow() -> Any:
    """pyarrow, for Parquet and Arrow."""
    return _load("pyarrow", "a Parquet or Arrow file")


def load_fsspec() -> Any:
    """fsspec, for URLs."""
    return _load("fsspec", "a URL")


def load_zstd() -> Any:
    """The zstd of the standard library, or the same for a Python that has none."""
    return _load("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", "a .zst file")


def load_igzip() -> Any | None:
    """igzip, which unpacks several times faster than zlib; None where it is not installed, and zlib does it."""
    try:
        return importlib.import_module("isal.igzip_lib")
    except ImportError:
        return None


def _load(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CorpusError(
            f"{what} needs the package {name}, which cannot be imported ({error}). Run: pip install 'gristmill[data]'"
        ) from error
