"""Locks on files and folders. The system releases them when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

__all__ = ["create_and_lock", "lock_file"]

# Errors of file systems that cannot lock a folder, such as some network file systems or those mounted without locks.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.EBADF}
SHARDS_REASON = "Another process is writing shards here"


def create_and_lock(folder: Path, *, reason: str = SHARDS_REASON) -> tuple[int, bool]:
    """Create the folder if needed and lock it. Returns its descriptor, and whether it was created.

    Closing the descriptor, or the end of the process, releases the lock.
    """
    while True:
        is_new = False
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            is_new = True
        try:
            descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            continue  # another process has removed the folder after a failure
        try:
            lock_file(descriptor, folder, reason=reason)
            if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
                return descriptor, is_new
        except FileNotFoundError:
            pass  # the same, between open and lstat
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def lock_file(descriptor: int, path: Path, *, reason: str = SHARDS_REASON) -> bool:
    """Lock an open file or folder. Returns False if the system cannot lock it.

    Raises BlockingIOError if another process has the lock.
    """
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
