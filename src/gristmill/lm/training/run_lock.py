"""The lock of a run folder: one process at a time trains in it.

The lock is a `flock` on the file `.lock` in the folder. The system releases it when the process ends for any reason.
The file names the holder, for the error message of a second process. Only the first process of a run takes the lock, on
behalf of all. Reading a run (generate, evaluate, report) needs no lock.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from gristmill.errors import FormatError
from gristmill.shards.place import lock_file
from gristmill.small_files import parse_json, read_small_file

__all__ = ["LOCK_FILE", "holder_of", "in_use", "is_trained_here", "locked", "seen_lock", "where_trained"]

LOCK_FILE = ".lock"
MAX_BYTES = 1 << 12

_held: set[int] = set()  # file descriptors of the locks that this process holds


@contextlib.contextmanager
def locked(run: Path, *, world: str = "") -> Iterator[bool]:
    """Create the folder of a run if it is missing, and hold its lock within the block.

    Yields whether the lock is exclusive: some network file systems have no locks. Raises `BlockingIOError`, which names
    the holder, if another process has the lock. Removes the folder at the end if it was created here and is empty.

    world: description of the processes that the lock is held for, such as "8 processes started by torchrun".
    """
    is_new = not run.exists()
    descriptor, is_exclusive = _open_and_lock(run)
    _held.add(descriptor)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, _this_process(world))
        yield is_exclusive
    finally:
        with contextlib.suppress(OSError):
            (run / LOCK_FILE).unlink()  # while the lock is held, so no other process can have locked this file
        _held.discard(descriptor)
        os.close(descriptor)
        if is_new:
            with contextlib.suppress(OSError):
                run.rmdir()


def _open_and_lock(run: Path) -> tuple[int, bool]:
    path = run / LOCK_FILE
    while True:
        try:
            run.mkdir(parents=True, exist_ok=True)
        except FileExistsError:  # also raised when another process removes the folder at this moment
            if run.exists() and not run.is_dir():
                raise
            continue
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except FileNotFoundError:
            continue  # the process that had created the folder has failed and removed it
        try:
            is_exclusive = lock_file(descriptor, path)
            # The previous holder may have removed the file after we opened it and before we locked it.
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor, is_exclusive
        except FileNotFoundError:
            pass
        except BlockingIOError as error:
            os.close(descriptor)
            raise in_use(run, _holder(path)) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def holder_of(run: Path) -> str | None:
    """Return a description of the process that trains in the folder, or None."""
    try:
        descriptor = os.open(run / LOCK_FILE, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    try:
        lock_file(descriptor, run / LOCK_FILE)
    except BlockingIOError:
        return _holder(run / LOCK_FILE)
    finally:
        os.close(descriptor)
    return None


def is_trained_here(run: Path) -> bool:
    """Return whether a process of this machine trains in the folder; see `where_trained`."""
    return where_trained(run) == "here"


def where_trained(run: Path) -> Literal["here", "elsewhere"] | None:
    """Return whether a process of this machine or of another one trains in the folder, as far as its lock file tells.

    Never takes the lock, so that a run can start at the same moment. A process of another machine cannot be checked: it
    may have ended without removing the file.
    """
    try:
        content = parse_json(seen_lock(run), error=FormatError)
        pid, host = int(content["pid"]), str(content["host"])
    except (FormatError, KeyError, TypeError, ValueError, OverflowError):
        return None
    if host != socket.gethostname():
        return "elsewhere"
    return "here" if _exists(pid) and _is_locked(run / LOCK_FILE) else None


def _exists(pid: int) -> bool:
    if pid <= 0 or os.name != "posix":
        return False
    try:
        os.kill(pid, 0)  # signal 0 only checks that the process exists
    except PermissionError:
        return True  # the process of another user
    except (OSError, OverflowError):
        return False
    return True


def _is_locked(path: Path) -> bool:
    """Return whether any process has a lock on this file, if the system lists them.

    The process that wrote the file may have crashed, and another one may have its number now.
    """
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return path.exists()
    return any(field.endswith(f":{inode}") for line in lines for field in line.split())


def seen_lock(run: Path) -> bytes:
    """Return the content of the lock file as this process sees it, or b""."""
    try:
        return read_small_file(run / LOCK_FILE, what="a lock file", max_bytes=MAX_BYTES, error=FormatError)
    except (OSError, FormatError):
        return b""


def in_use(run: Path, holder: str) -> BlockingIOError:
    """Return the error for a second process."""
    advice = "Wait until that run has ended, or pass another folder"
    return BlockingIOError(errno.EWOULDBLOCK, f"Another run is using this folder: {holder}. {advice}", str(run))


def _this_process(world: str) -> bytes:
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since, "world": world}).encode()


def _holder(path: Path) -> str:
    """Return a description of the process that holds the lock."""
    try:
        content = parse_json(seen_lock(path.parent), error=FormatError)
        world = f" ({content['world']!s:.80})" if content.get("world") else ""
        return f"process {int(content['pid'])} on {content['host']!s:.80}, since {content['since']!s:.40}{world}"
    except (FormatError, KeyError, TypeError, ValueError, AttributeError):
        return "a process that has just started"


def _leave_to_the_parent() -> None:
    """Close the locks in a forked process, such as a data worker, which may outlive its parent."""
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
