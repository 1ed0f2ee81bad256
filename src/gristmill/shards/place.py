"""The place where shards are written: a folder of its own, which one process at a time has locked."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

# What systems answer that cannot lock a folder: some network file systems, and some mounted without locks.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.EBADF}


def check_place(out: Path) -> None:
    """Raise unless `out` is a folder that can be written to, or can be made."""
    try:
        status = os.lstat(out)
    except FileNotFoundError:
        if not out.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "No such folder to write to", str(out.parent)) from None
        if not os.access(out.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "No permission to write in this folder", str(out.parent)) from None
        return
    if stat.S_ISLNK(status.st_mode):
        raise FileExistsError(errno.EEXIST, "Is a symbolic link, which is not followed. Pass a folder", str(out))
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "Is a file. Pass the name of a folder", str(out))
    if not os.access(out, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "No permission to write in this folder", str(out))


def create_and_lock(folder: Path) -> tuple[int, bool]:
    """The folder, open and locked, and whether it was made here.

    Closing it, or the end of the process, however it ends, releases the lock.
    """
    while True:
        is_new = False
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            is_new = True
        try:
            descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            continue  # the process that had it has failed, and removed it
        try:
            lock_file(descriptor, folder)
            if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
                return descriptor, is_new
        except FileNotFoundError:
            pass  # likewise, between our two steps
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def lock_file(descriptor: int, path: Path) -> bool:
    """Lock an open file or folder; False on a system that cannot. `BlockingIOError`: another process has the lock."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise BlockingIOError(error.errno, "Another process is writing shards here", str(path)) from None
    return True
