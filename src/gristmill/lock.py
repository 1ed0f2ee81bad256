"""Locks of files and folders that end with the process that holds them, however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

__all__ = ["create_and_lock", "lock_file"]

# What systems answer that cannot lock a folder: some network file systems, and some mounted without locks.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.EBADF}
SHARDS_REASON = "Another process is writing shards here"


def create_and_lock(folder: Path, *, reason: str = SHARDS_REASON) -> tuple[int, bool]:
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
            lock_file(descriptor, folder, reason=reason)
            if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
                return descriptor, is_new
        except FileNotFoundError:
            pass  # likewise, between our two steps
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def lock_file(descriptor: int, path: Path, *, reason: str = SHARDS_REASON) -> bool:
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
        raise BlockingIOError(error.errno, reason, str(path)) from None
    return True
