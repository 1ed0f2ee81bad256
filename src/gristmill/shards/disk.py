"""Unbuffered files: links are not followed, new files are private, and every error names the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast


def open_file(path: Path, flags: int = 0) -> BinaryIO:
    """Open a file for reading and writing, without a buffer; raise an error for a link."""

    def opener(name: str, _: int) -> int:
        return os.open(name, os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | flags, 0o600)

    return cast(BinaryIO, open(path, "r+b", buffering=0, opener=opener))


def create_file(path: Path) -> BinaryIO:
    """Create an empty file that only its owner can access, in place of one that an interrupted run may have left."""
    path.unlink(missing_ok=True)
    return open_file(path, os.O_CREAT | os.O_EXCL)


def write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write all of `data`."""
    rest = memoryview(data)
    with _naming(file):
        while rest:
            rest = rest[file.write(rest) :]


def sync(file: BinaryIO) -> None:
    """Wait until the file is on the disk, with its metadata."""
    with _naming(file):
        os.fsync(file.fileno())


def sync_data(file: BinaryIO) -> None:
    """Wait until the data of the file is on the disk; its timestamps may follow later."""
    with _naming(file):
        getattr(os, "fdatasync", os.fsync)(file.fileno())  # macOS has no fdatasync


@contextlib.contextmanager
def _naming(file: BinaryIO) -> Iterator[None]:
    """Add the file name to errors: the system does not name the file for a full or failing disk."""
    try:
        yield
    except OSError as error:
        error.filename = file.name
        raise
