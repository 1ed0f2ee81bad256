"""Atomic creation of a folder: it appears complete, or not at all.

Files are written to a hidden folder next to the target and flushed to disk, then the folder is renamed. An old folder
is exchanged with the new one and removed last. A folder is replaced only if it contains nothing but exported files.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from gristmill.publish import flush_folder

__all__ = ["check_folder", "flush_file", "named_errors", "published_folder"]


def check_folder(target: Path, *, overwrite: bool, is_ours: Callable[[str], bool]) -> None:
    """Raise unless a folder may be written at `target`: it does not exist, is empty, or may be replaced.

    is_ours: whether a file of that name belongs to an export.
    """
    if not target.name:
        raise IsADirectoryError(errno.EISDIR, "is not a name for a new folder. Pass another name", str(target))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "output folder does not exist. Create it first", str(target.parent))
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is a file or a link. Pass the name of a folder", str(target))
    entries = sorted(target.iterdir())
    others = [entry.name for entry in entries if not (is_ours(entry.name) and entry.is_file())]
    if others:
        message = f"contains other files, such as {others[0]!r}. Pass the name of a new folder"
        raise FileExistsError(errno.EEXIST, message, str(target))
    if entries and not overwrite:
        raise FileExistsError(
            errno.EEXIST, "already exists. Pass overwrite=True to replace it, or another name", str(target)
        )


@contextlib.contextmanager
def published_folder(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a folder for the files, which is renamed to `target` if the block ends without an error.

    Raises FileExistsError if another process has written files there in the meantime, unless `overwrite`.
    """
    mark = f"{os.getpid()}.{int.from_bytes(os.urandom(6))}"
    temporary = target.with_name(f".{target.name[:50]}.tmp.{mark}")
    try:
        temporary.mkdir()
        yield temporary
        flush_folder(temporary)
        _move(temporary, target, aside=target.with_name(f".{target.name[:50]}.removed.{mark}"), overwrite=overwrite)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        # The error of a full disk names no file, others a file in the hidden folder.
        if isinstance(error, OSError) and os.fspath(error.filename or temporary).startswith(str(temporary)):
            error.filename = str(target)
        raise
    flush_folder(target.parent)


def _move(temporary: Path, target: Path, *, aside: Path, overwrite: bool) -> None:
    try:
        temporary.rename(target)  # unlike a look at the target, this cannot miss the files of another process
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    if not overwrite:
        raise FileExistsError(
            errno.EEXIST, "already exists. Pass overwrite=True to replace it, or another name", str(target)
        )
    if _exchange(temporary, target):
        flush_folder(target.parent)  # the new folder must be durable before the old one is removed
        shutil.rmtree(temporary, ignore_errors=True)
        return
    target.rename(aside)
    try:
        temporary.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step. Returns False if the system cannot.

    With two renames instead, a process killed between them would leave no folder at the second name.
    """
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or an older C library
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    status = rename(here, os.fsencode(first), here, os.fsencode(second), ctypes.c_uint(exchange))
    return bool(status == 0)


@contextlib.contextmanager
def named_errors(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Turn library errors while writing `path` (`kinds`, or an OSError without errno) into an OSError that names it.

    NumPy and safetensors report a full disk with their own exceptions.
    """
    try:
        yield
    except Exception as error:
        is_numbered = isinstance(error, OSError) and error.errno is not None
        if is_numbered or not isinstance(error, (OSError, *kinds)):
            raise
        reason = next((str(part) for part in error.args if part), type(error).__name__)
        raise OSError(errno.EIO, f"cannot be written ({reason}). Check that the disk is not full", str(path)) from error


def flush_file(path: Path) -> None:
    """Flush the content of a file to disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
