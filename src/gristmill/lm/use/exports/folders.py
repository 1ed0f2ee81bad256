"""A folder that appears under its name whole, or not at all.

Written to a hidden folder beside it, every file flushed to the disk, then renamed. A folder that is replaced is moved
aside first and removed last; only one that holds nothing but such files is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from gristmill.publish import flush_folder

__all__ = ["check_folder", "flush_file", "named_errors", "published_folder"]


def check_folder(target: Path, *, overwrite: bool, is_ours: Callable[[str], bool]) -> None:
    """Raise unless a folder may be made at `target`: it is not there, or empty, or may be replaced.

    is_ours: whether a file of that name is one that is written here.
    """
    if not target.name:
        raise IsADirectoryError(errno.EISDIR, "Is no name for a new folder; pass another one", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder to write to", str(target.parent))
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "Is a file or a link; pass the name of a folder", str(target))
    entries = sorted(target.iterdir())
    others = [entry.name for entry in entries if not (is_ours(entry.name) and entry.is_file())]
    if others:
        message = f"Holds other files, such as {others[0]!r}; pass the name of a new folder"
        raise FileExistsError(errno.EEXIST, message, str(target))
    if entries and not overwrite:
        raise FileExistsError(errno.EEXIST, "Is already there; choose another name or pass overwrite=True", str(target))


@contextlib.contextmanager
def published_folder(target: Path) -> Iterator[Path]:
    """A folder to write files to, which is at `target` once the block has ended without an error."""
    mark = f"{os.getpid()}.{int.from_bytes(os.urandom(6))}"
    temporary = target.with_name(f".{target.name[:50]}.tmp.{mark}")
    try:
        temporary.mkdir()
        yield temporary
        flush_folder(temporary)
        _move(temporary, target, aside=target.with_name(f".{target.name[:50]}.removed.{mark}"))
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)  # a full disk does not say whose
        raise
    flush_folder(target.parent)


def _move(temporary: Path, target: Path, *, aside: Path) -> None:
    is_there = target.exists()
    if is_there:
        target.rename(aside)
    try:
        temporary.rename(target)
    except BaseException:
        if is_there:
            aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def named_errors(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Turn an error of a library that writes `path`, one of `kinds` or without a number, into an OSError that names it.

    NumPy and safetensors report a full disk in words of their own.
    """
    try:
        yield
    except Exception as error:
        is_numbered = isinstance(error, OSError) and error.errno is not None
        if is_numbered or not isinstance(error, (OSError, *kinds)):
            raise
        reason = next((str(part) for part in error.args if part), type(error).__name__)
        raise OSError(errno.EIO, f"Cannot be written ({reason}). Is the disk full?", str(path)) from error


def flush_file(path: Path) -> None:
    """Make the content of a file safe on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
