"""Write files atomically: a file appears under its name completely, or not at all.

The data are written to `.NAME.tmp.PID.NUMBER` in the same folder and flushed to disk. Then the file is renamed and the
folder flushed. A crash, a full disk or Ctrl-C leaves the old file or the new one, never a partial file. The temporary
file is removed on any error. After SIGKILL it stays, and the next process that writes the same file removes it: a
temporary file is locked as long as its process lives, so an unlocked one is abandoned.

Until it is renamed, only its owner can read the temporary file: the file that it replaces may be private. It gets the
permissions of that file, or those of any new file, just before the rename.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gristmill.forks import hold_during_forks

# Errors of file systems without permissions, such as FAT and some network file systems.
_NO_PERMISSIONS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
# As `temporary_name` makes them.
_TEMPORARY = re.compile(r"\.(.{1,50})\.tmp\.\d{1,10}\.\d{1,15}", re.ASCII | re.DOTALL)
# Temporary files by the beginning of the name of their target, of each folder (device and inode) that this process has
# written to: those that were there before.
_abandoned: dict[tuple[int, int], dict[str, list[str]]] = {}
_umask_lock = threading.Lock()
hold_during_forks(_umask_lock)  # so a child never starts with the strict umask either


@contextlib.contextmanager
def publish(path: str | os.PathLike[str], *, overwrite: bool = True, durable: bool = True) -> Iterator[BinaryIO]:
    """Yield a binary file to write to. It appears at `path` when the block ends without an error.

    A symbolic link at `path` is replaced, not followed. With `overwrite=False`, anything at `path` raises
    FileExistsError. With `durable=False`, nothing is flushed to disk: after a power failure the file may be empty,
    truncated or missing, so its readers must compare its checksum.

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
    remove_abandoned(target)
    temporary = temporary_name(target)
    held = None
    try:
        # The file is created inside the `try`, because Ctrl-C may come as soon as it exists.
        descriptor = create_private(temporary)
        while not _hold(descriptor, temporary):
            os.close(descriptor)
            temporary = temporary_name(target)
            descriptor = create_private(temporary)
        with os.fdopen(descriptor, "wb") as file:
            held = os.dup(descriptor)  # keeps the lock until the file has its name
            yield file
            file.flush()
            set_mode(file, usual_mode(target.parent) if mode is None else mode)
            if durable:
                os.fsync(file.fileno())
        _move(temporary, target, overwrite)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        # Gristmill's own errors, such as InputChangedError, have no errno, and a file name would hide their message.
        if isinstance(error, OSError) and error.filename in (None, str(temporary)) and error.errno is not None:
            error.filename = str(target)  # the error of a full disk has no file name
        raise
    finally:
        if held is not None:
            os.close(held)
    if durable:
        flush_folder(target.parent)


def _check_target(target: Path, overwrite: bool) -> int | None:
    """Return the mode of the file to replace, None if there is no file. Raises if `target` must not be written."""
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise FileNotFoundError(
                errno.ENOENT, "The output folder does not exist. Create it first", str(target.parent)
            ) from None
        return None
    if not overwrite:
        raise FileExistsError(
            errno.EEXIST, "Already exists. Pass overwrite=True to replace it, or another name", str(target)
        )
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a folder. Pass the name of a file", str(target))
    if stat.S_ISLNK(status.st_mode):
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(
            errno.EINVAL, "Is a device or pipe, which cannot be replaced. Pass the name of a file", str(target)
        )
    return stat.S_IMODE(status.st_mode)


def _move(temporary: Path, target: Path, overwrite: bool) -> None:
    if not overwrite:
        try:
            os.link(temporary, target)  # unlike rename, this fails if another process has created the target
        except FileExistsError:
            _check_target(target, overwrite)
            raise
        except OSError:
            _check_target(target, overwrite)  # the file system has no hard links: check again, then rename
        else:
            temporary.unlink()
            return
    temporary.replace(target)


def temporary_name(target: Path) -> Path:
    """Return an unpredictable name next to `target`, which nothing has."""
    # A file name may have 255 bytes, so only 50 characters of the target's name are used. The random number avoids
    # clashes with other threads, other hosts that share the folder, and files left by killed processes.
    return target.with_name(f".{target.name[:50]}.tmp.{os.getpid()}.{int.from_bytes(os.urandom(6))}")


def _hold(descriptor: int, temporary: Path) -> bool:
    """Lock a new temporary file as long as it is open. Returns False if another process has just removed the file."""
    is_locked = _lock(descriptor)
    return is_locked is None or (is_locked and os.path.lexists(temporary))


def _lock(descriptor: int) -> bool | None:
    """Lock a file. Returns False if another descriptor has the lock, None if the system has no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def remove_abandoned(target: Path) -> None:
    """Remove the temporary files that killed processes have left for `target`.

    A process lists each folder once, when it first writes there: a folder may have 100,000 files, each of which is
    published.
    """
    with contextlib.suppress(OSError):  # the error of a missing folder comes from the write
        status = target.parent.stat()
        key = (status.st_dev, status.st_ino)
        if key not in _abandoned:
            _abandoned[key] = _list_temporary(target.parent)
        for name in _abandoned[key].pop(target.name[:50], ()):
            _remove_if_abandoned(target.parent / name)


def _list_temporary(folder: Path) -> dict[str, list[str]]:
    """Return the temporary files in a folder by the beginning of the name of their target."""
    found: dict[str, list[str]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if match := _TEMPORARY.fullmatch(entry.name):
                found.setdefault(match[1], []).append(entry.name)
    return found


def _remove_if_abandoned(path: Path) -> None:
    """Remove a temporary file of this user that no process has locked, unless the process in its name is alive."""
    with contextlib.suppress(OSError):
        status, writer = os.lstat(path), int(path.name.split(".")[-2])
        is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        if not stat.S_ISREG(status.st_mode) or not is_own or _is_another_process(writer):
            return
        descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
        try:
            if _lock(descriptor) and os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                path.unlink()
        finally:
            os.close(descriptor)


def _is_another_process(pid: int) -> bool:
    """Return whether another process of this machine has this id. Versions before 0.2 do not lock their files."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return pid != os.getpid()


def create_private(path: Path, flags: int = os.O_WRONLY) -> int:
    """Create a file that only its owner can access, and return its descriptor. Raises if anything is at `path`."""
    flags |= os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    return os.open(path, flags, 0o600)


def usual_mode(folder: Path) -> int:
    """Return the permissions that the system gives a new file in `folder`, by the umask or the folder's default ACL."""
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):  # some file systems have no files without a name
            descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
            try:
                return stat.S_IMODE(os.fstat(descriptor).st_mode)
            finally:
                os.close(descriptor)
    with _umask_lock:
        umask = os.umask(0o077)  # the umask can only be read by setting it: a strict one exposes no other file
        os.umask(umask)
    return 0o666 & ~umask


def set_mode(file: BinaryIO, mode: int) -> None:
    """Set the permissions of an open file, unless its file system has no permissions."""
    if not hasattr(os, "fchmod"):
        return
    try:
        os.fchmod(file.fileno(), mode)
    except OSError as error:
        if error.errno not in _NO_PERMISSIONS:
            raise


def flush_folder(folder: Path) -> None:
    """Flush the names in `folder` to disk, so that a rename survives a power failure."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot flush a folder
            error.filename = str(folder)  # the system's error has no file name
            raise
    finally:
        os.close(descriptor)
