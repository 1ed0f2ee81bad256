"""The place where shards are written: a folder of its own, which one process at a time has locked."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from gristmill.lock import create_and_lock, lock_file

__all__ = ["check_place", "create_and_lock", "lock_file"]


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
