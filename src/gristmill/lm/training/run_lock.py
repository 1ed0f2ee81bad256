"""The lock of a run folder: one process at a time trains in it.

The lock is the system's (`flock`), on the file `.lock` in the folder, and ends with the process, whatever ends it. The
file names the holder, for the error that a second process gets. Only the first process of a run takes the lock, for all
of them; reading a run (generate, evaluate, report) needs none.
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

from gristmill.errors import FormatError
from gristmill.shards.place import lock_file
from gristmill.small_files import parse_json, read_small_file

__all__ = ["LOCK_FILE", "holder_of", "in_use", "locked", "seen_lock"]

LOCK_FILE = ".lock"
MAX_BYTES = 1 << 12

_held: set[int] = set()  # descriptors


@contextlib.contextmanager
def locked(run: Path, *, world: str = "") -> Iterator[bool]:
    """Make the folder of a run if there is none, and hold its lock within the block.

    Gives whether the lock is exclusive: some network file systems have no locks. `BlockingIOError` names the process
    that holds it. A folder that was made here and is still empty at the end is removed.

    world: the processes that the lock is held for, in words, such as "8 processes by torchrun".
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
            (run / LOCK_FILE).unlink()  # while the lock is held: nobody else can have it
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
        except FileExistsError:  # also where another process removes the folder at this moment
            if run.exists() and not run.is_dir():
                raise
            continue
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except FileNotFoundError:
            continue  # the process that had made the folder has failed, and removed it
        try:
            is_exclusive = lock_file(descriptor, path)
            # The process that had the lock may have removed the file before ours came to be locked.
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
    """The process that trains in the folder, in words; None where none does."""
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


def seen_lock(run: Path) -> bytes:
    """The lock file of a folder as this process sees it; b"" where it sees none."""
    try:
        return read_small_file(run / LOCK_FILE, what="a lock file", max_bytes=MAX_BYTES, error=FormatError)
    except (OSError, FormatError):
        return b""


def in_use(run: Path, holder: str) -> BlockingIOError:
    """The error of a second process."""
    advice = "Wait until that run has ended, or pass another folder"
    return BlockingIOError(errno.EWOULDBLOCK, f"Another run is using this folder: {holder}. {advice}", str(run))


def _this_process(world: str) -> bytes:
    since = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since, "world": world}).encode()


def _holder(path: Path) -> str:
    """The process that holds the lock, in words."""
    try:
        content = parse_json(seen_lock(path.parent), error=FormatError)
        world = f" ({content['world']!s:.80})" if content.get("world") else ""
        return f"process {int(content['pid'])} on {content['host']!s:.80}, since {content['since']!s:.40}{world}"
    except (FormatError, KeyError, TypeError, ValueError):
        return "a process that has just started"


def _leave_to_the_parent() -> None:
    """In a forked process, such as a worker that reads data: it may outlive its parent, and must not keep the lock."""
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_the_parent)
