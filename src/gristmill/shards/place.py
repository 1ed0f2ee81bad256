"""The output folder: checking that it can be written to, and locking it for one process at a time."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from gristmill.lock import create_and_lock, lock_file

__all__ = ["check_place", "create_and_lock", "lock_file"]


def check_place(out: Path) -> None:
    """Raise unless `out` is a writable folder, or can be created."""
    try:
        status = os.lstat(out)
    except FileNotFoundError:
        if not out.parent.is_dir():
            raise FileNotFoundError(
                errno.ENOENT, "The parent of the output folder does not exist. Create it first", str(out.parent)
            ) from None
        if not os.access(out.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "No permission to write in this folder", str(out.parent)) from None
        return
    if stat.S_ISLNK(status.st_mode):
        raise FileExistsError(
            errno.EEXIST, "The output folder is a symbolic link, which is not followed. Pass a folder", str(out)
        )
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "The output path is a file. Pass the path of a folder", str(out))
    if not os.access(out, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "No permission to write in this folder", str(out))
