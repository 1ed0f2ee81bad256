"""Folder kind: whether a folder holds shards."""

from __future__ import annotations

from pathlib import Path

from gristmill.shards.layouts import recognize
from gristmill.shards.manifest import MANIFEST_FILE, PROGRESS_FILE

__all__ = ["is_gristmill_folder", "is_shard_folder"]


def is_shard_folder(path: Path) -> bool:
    """Return whether `path` is a folder of shards, finished or not, or of token files of another program."""
    return path.is_dir() and (is_gristmill_folder(path) or recognize(path) is not None)


def is_gristmill_folder(folder: Path) -> bool:
    """Return whether `gristmill encode` wrote to this folder."""
    return any((folder / name).is_file() for name in (MANIFEST_FILE, PROGRESS_FILE))
