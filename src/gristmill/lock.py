"""Locks on files and folders. The system releases them when the process ends, however it ends.

A second process gets an error that names the holder of the lock (`create_and_lock`, `lock_file`), or waits for it
(`waiting_lock`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["create_and_lock", "holder_of", "lock_file", "waiting_lock"]

# Errors of file systems that cannot lock a folder, such as some network file systems or those mounted without locks.
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.EBADF}
PATIENCE = 5.0  # seconds: most waits are over earlier, and a message would only be noise
POLL_SECONDS = 0.05
_of_thread = threading.local()  # device and inode of the locks that the thread waited for and has
SHARDS_REASON = "Another process is writing shards here"
SHARDS_ADVICE = "Wait until it has ended, or pass another folder"


def create_and_lock(folder: Path, *, reason: str = SHARDS_REASON, advice: str = SHARDS_ADVICE) -> tuple[int, bool]:
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
            lock_file(descriptor, folder, reason=reason, advice=advice)
            if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
                return descriptor, is_new
        except FileNotFoundError:
            pass  # the same, between open and lstat
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def lock_file(descriptor: int, path: Path, *, reason: str = SHARDS_REASON, advice: str = SHARDS_ADVICE) -> bool:
    """Lock an open file or folder. Returns False if the system cannot lock it.

    Raises BlockingIOError, which names the other process, if that has the lock.
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
        raise BlockingIOError(error.errno, f"{reason}: {holder_of(descriptor)}. {advice}", str(path)) from None
    return True


@contextlib.contextmanager
def waiting_lock(path: Path, *, on_wait: Callable[[str], object] = lambda holder: None) -> Iterator[None]:
    """Hold the lock of a file, which is created if needed, or of a folder. Waits while another process has it.

    A thread that has the lock may take it again.

    on_wait: called once with a description of the other process, after a wait of `PATIENCE` seconds. Ctrl-C ends the
        wait.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0), 0o666)
    held: set[tuple[int, int]] = _of_thread.__dict__.setdefault("held", set())
    status = os.fstat(descriptor)
    key = status.st_dev, status.st_ino
    is_first = key not in held
    try:
        if is_first:
            _wait(descriptor, path, on_wait)
            held.add(key)
        yield
    finally:
        if is_first:
            held.discard(key)
        os.close(descriptor)


def _wait(descriptor: int, path: Path, on_wait: Callable[[str], object]) -> None:
    began, is_told = time.monotonic(), False
    while True:
        try:
            lock_file(descriptor, path)
        except BlockingIOError:
            if not is_told and time.monotonic() - began >= PATIENCE:
                on_wait(holder_of(descriptor))
                is_told = True
            time.sleep(POLL_SECONDS)
        else:
            return


def holder_of(descriptor: int) -> str:
    """Return a description of the process that has locked an open file, as far as this machine knows it."""
    inode = os.fstat(descriptor).st_ino
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4711 08:01:1573 0 EOF
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}") and fields[4].isdecimal():
            return f"process {fields[4]} on {socket.gethostname()}"
    return "a process that this machine does not list"
