"""Work folders: files through which the tasks of a job get their input and leave their results.

Every worker must be able to access the same folder: a local folder if all workers run on this machine, otherwise one on
a shared file system. A file appears under its name complete, or not at all.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from gristmill.corpus.inputs import is_url
from gristmill.corpus.threads import map_in_order
from gristmill.errors import FormatError, GristmillError
from gristmill.publish import publish
from gristmill.small_files import read_small_file

NUM_REMOVERS = 4
# A temporary file that has not been written to for this long belongs to a worker that was killed.
LEFTOVER_SECONDS = 3600
# Enough for millions of inputs, at about 200 bytes each; no other file that is read whole is larger.
MAX_READ_BYTES = 1 << 30
# Number of concurrent requests to a file system.
MAX_REQUESTS = 16
_NAME = re.compile(r"[\w.-]{1,200}")  # letters of any language: some shards are named after their folder
_TEMPORARY = re.compile(r"\.(.*)\.tmp\.\d+\.\d+")


Item = TypeVar("Item")
Answer = TypeVar("Answer")


class DamagedPartError(GristmillError):
    """A file of a work folder does not match what its task has written: the task must run again."""

    def __init__(self, message: str, *, task: str) -> None:
        super().__init__(message)
        self.task = task


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file that a task has made."""

    name: str
    num_bytes: int
    xxh64: str


class LocalFile(NamedTuple):
    """A local file, and the position in it of the requested bytes."""

    path: Path
    begin: int


class WorkFolder(ABC):
    """Files by name, in one folder without subfolders."""

    location: str  # argument of `open_work_folder` in another process

    @abstractmethod
    def read(self, name: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return a small file; raise FileNotFoundError if it is missing, FormatError if larger than `max_bytes`."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the size of a file; None if it is missing."""

    @abstractmethod
    def create(self, name: str, *, durable: bool = True) -> AbstractContextManager[BinaryIO]:
        """Open a file for writing. It appears under its name when the block ends without an error.

        With `durable=False` it may be damaged after a power failure. Use it for files whose readers verify a checksum
        and have the task run again on a mismatch. Flushing such files to the disk can take longer than the task.
        """

    @abstractmethod
    def as_local_file(self, name: str, begin: int = 0, end: int | None = None) -> AbstractContextManager[LocalFile]:
        """A local file with bytes `begin` to `end` of a file, valid within the block."""

    @abstractmethod
    def discard(self, name: str) -> None:
        """Remove a file if it exists."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all files."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the folder and everything in it."""

    @abstractmethod
    def discard_leftovers(self) -> None:
        """Remove temporary files of workers that were killed long ago."""

    def clear(self) -> None:
        """Remove all files; the folder stays."""
        for name in self.names():
            self.discard(name)

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Write a small file."""
        with self.create(name, durable=durable) as file:
            file.write(data)


class LocalWorkFolder(WorkFolder):
    """A folder of a local or mounted file system."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100  a worker may have another working directory
        self.location = str(self.path)

    def read(self, name: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        return read_small_file(self._path(name), what="a file of a job", max_bytes=max_bytes, error=FormatError)

    def size(self, name: str) -> int | None:
        try:
            status = os.lstat(self._path(name))
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    @contextlib.contextmanager
    def create(self, name: str, *, durable: bool = True) -> Iterator[BinaryIO]:
        with publish(self._path(name), durable=durable) as file:
            yield file

    @contextlib.contextmanager
    def as_local_file(self, name: str, begin: int = 0, end: int | None = None) -> Iterator[LocalFile]:
        yield LocalFile(self._path(name), begin)

    def discard(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return [entry.name for entry in self.path.iterdir()]

    def remove(self) -> None:
        """Remove the folder. Tries repeatedly, because a cancelled worker may still add a file."""
        with contextlib.suppress(OSError):
            self.discard("job.json")  # from here on, no run can resume the job
        for _ in range(20):
            self._remove_files()
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                return
            time.sleep(0.05)

    def _remove_files(self) -> None:
        """Remove all files on several threads: removing a file of 100 MB may take 40 ms."""

        def unlink(name: str) -> None:
            with contextlib.suppress(OSError):
                (self.path / name).unlink()

        with (
            contextlib.suppress(OSError),
            contextlib.closing(map_in_order(unlink, self.names(), num_threads=NUM_REMOVERS)) as removed,
        ):
            for _ in removed:
                pass

    def discard_leftovers(self) -> None:
        """Keep those written to in the last hour: they may belong to a worker that this process does not know."""
        for entry in self.path.iterdir():
            with contextlib.suppress(FileNotFoundError):  # published or removed in the meantime
                if is_temporary(entry.name) and entry.lstat().st_mtime < time.time() - LEFTOVER_SECONDS:
                    entry.unlink()

    def _path(self, name: str) -> Path:
        return self.path / check_name(name)


def open_work_folder(location: str) -> WorkFolder:
    """Open the work folder at a path or URL."""
    for local in ("file://", "local://"):
        if location.startswith(local):
            return LocalWorkFolder(Path(location.removeprefix(local)))
    if not is_url(location):
        return LocalWorkFolder(Path(location))
    from gristmill.executors.remote_folder import RemoteWorkFolder  # imported late: a local folder needs no fsspec

    return RemoteWorkFolder(location)


def in_parallel(ask: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """Call `ask` for all items concurrently. An object store takes as long for one request as for many at once."""
    with ThreadPoolExecutor(MAX_REQUESTS) as pool:
        return list(pool.map(ask, items))


def check_name(name: str) -> str:
    """Return the name of a file in a work folder; raise FormatError if it could lead outside the folder.

    >>> check_name("encode-00003.train.ids")
    'encode-00003.train.ids'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise FormatError(f"{str(name)[:80]!r} is not the name of a file in a work folder.")
    return name


def is_temporary(name: str) -> bool:
    """Whether this is the name of a file that is being written.

    >>> is_temporary(".job.json.tmp.12.345"), is_temporary("job.json")
    (True, False)
    """
    return _TEMPORARY.fullmatch(name) is not None
