"""Publish: a file appears under its name whole, or not at all.

Written to `.NAME.tmp.PID.NUMBER` in the same folder, flushed to the disk, renamed, and the folder flushed: a crash, a
full disk or Ctrl-C at any moment leaves the old file or the new one, never a part of either. The temporary file is
removed when anything fails (short of SIGKILL).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def publish(path: str | os.PathLike[str], *, overwrite: bool = True, flush: bool = True) -> Iterator[BinaryIO]:
    """A binary file to write to, which is at `path` once the block has ended without an error.

    A symbolic link at `path` is replaced, not followed. With `overwrite=False` anything at `path` is FileExistsError.
    With `flush=False` nobody waits for the disk: a power failure within half a minute may leave the file damaged.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with publish(Path(folder.name, "a.txt")) as file:
    ...     _ = file.write(b"whole")
    >>> Path(folder.name, "a.txt").read_bytes(), os.listdir(folder.name)
    (b'whole', ['a.txt'])
    >>> folder.cleanup()
    """
    target = Path(path)
    mode = _check_target(target, overwrite)
    temporary = _temporary_name(target)
    try:
        # Created inside the `try`: Ctrl-C may come at any moment after the file exists.
        with os.fdopen(_create(temporary), "wb") as file:
            if mode is not None:
                temporary.chmod(mode)  # whoever could not read the old file cannot read the new one
            yield file
            file.flush()
            if flush:
                os.fsync(file.fileno())
        _move(temporary, target, overwrite)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        # Errors of ours, such as InputChangedError, have no number, and a message that a file name would replace.
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            error.filename = str(target)  # a full disk does not say whose
        raise
    if flush:
        flush_folder(target.parent)


def _check_target(target: Path, overwrite: bool) -> int | None:
    """The mode of the file that is to be replaced, if there is one; an error where `target` must not be written."""
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "No such folder to write to", str(target.parent)) from None
        return None
    if not overwrite:
        raise FileExistsError(errno.EEXIST, "Is already there; choose another name or pass overwrite=True", str(target))
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory; pass the name of a file", str(target))
    if stat.S_ISLNK(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "Is a device or pipe; only a regular file can be replaced", str(target))
    return stat.S_IMODE(status.st_mode)


def _move(temporary: Path, target: Path, overwrite: bool) -> None:
    if not overwrite:
        try:
            os.link(temporary, target)  # unlike rename, it fails if somebody has written there meanwhile
        except FileExistsError:
            _check_target(target, overwrite)
            raise
        except OSError:
            _check_target(target, overwrite)  # a file system without links: the best that can be done
        else:
            temporary.unlink()
            return
    temporary.replace(target)


def _temporary_name(target: Path) -> Path:
    # A name may have 255 bytes; 50 characters of it leave room for ours. The random number makes the name ours alone,
    # whatever other threads, hosts that share the folder or killed processes have written.
    return target.with_name(f".{target.name[:50]}.tmp.{os.getpid()}.{int.from_bytes(os.urandom(6))}")


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)


def flush_folder(folder: Path) -> None:
    """Make the names in `folder` safe: a file that was renamed stays renamed."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot flush a folder
            error.filename = str(folder)  # the system does not say which
            raise
    finally:
        os.close(descriptor)
