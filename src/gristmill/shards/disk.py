"""Files that are written as they come: links are not followed, and every error names the file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast


def open_file(path: Path, flags: int = 0) -> BinaryIO:
    """The file, open for reading and writing without a buffer; an error where it is a link."""

    def opener(name: str, _: int) -> int:
        return os.open(name, os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | flags, 0o666)

    return cast(BinaryIO, open(path, "r+b", buffering=0, opener=opener))


def create_file(path: Path) -> BinaryIO:
    """A new, empty file in place of what an interrupted run may have left there."""
    path.unlink(missing_ok=True)
    return open_file(path, os.O_CREAT | os.O_EXCL)


def write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write all of `data`."""
    rest = memoryview(data)
    with _naming(file):
        while rest:
            rest = rest[file.write(rest) :]


def sync(file: BinaryIO) -> None:
    """Wait until the file is on the disk."""
    with _naming(file):
        os.fsync(file.fileno())


def sync_data(file: BinaryIO) -> None:
    """Wait until what is in the file is on the disk, though perhaps not its times."""
    with _naming(file):
        getattr(os, "fdatasync", os.fsync)(file.fileno())  # macOS has no fdatasync


@contextlib.contextmanager
def _naming(file: BinaryIO) -> Iterator[None]:
    """Let an error name the file: a full or failing disk does not say where it happened."""
    try:
        yield
    except OSError as error:
        error.filename = file.name
        raise
