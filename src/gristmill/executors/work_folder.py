"""Work folders: where the tasks of a job find what to do and leave what they have made.

Every worker must see the same folder: a folder of this machine where all workers run here, otherwise one of a file
system that all machines share. A file appears under its name whole, or not at all.
"""

from __future__ import annotations

import contextlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gristmill.corpus.inputs import is_url
from gristmill.errors import GristmillError
from gristmill.publish import publish


class DamagedPartError(GristmillError):
    """A file of a work folder is not what its task has written: the task must run again."""

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
    """A file of this machine, and where in it the bytes that were asked for begin."""

    path: Path
    begin: int


class WorkFolder(ABC):
    """Files by name, in one folder without subfolders."""

    location: str  # what another process passes to `open_work_folder`

    @abstractmethod
    def read(self, name: str) -> bytes:
        """All of a small file; FileNotFoundError if there is none."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """The size of a file, None if there is none."""

    @abstractmethod
    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file to write to, which is there under its name once the block has ended without an error."""

    @abstractmethod
    def as_local_file(self, name: str, begin: int = 0, end: int | None = None) -> AbstractContextManager[LocalFile]:
        """A file of this machine that has bytes `begin` to `end` of a file, for as long as the block lasts."""

    @abstractmethod
    def discard(self, name: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all files."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the folder and all that is in it."""

    def write(self, name: str, data: bytes) -> None:
        """Write a small file."""
        with self.create(name) as file:
            file.write(data)


class LocalWorkFolder(WorkFolder):
    """A folder of this machine, or one that a shared file system shows as such."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = str(path)

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def size(self, name: str) -> int | None:
        try:
            return (self.path / name).stat().st_size
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        with publish(self.path / name) as file:
            yield file

    @contextlib.contextmanager
    def as_local_file(self, name: str, begin: int = 0, end: int | None = None) -> Iterator[LocalFile]:
        yield LocalFile(self.path / name, begin)

    def discard(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return [entry.name for entry in self.path.iterdir()]

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def open_work_folder(location: str) -> WorkFolder:
    """The work folder at a path or URL."""
    if is_url(location):
        raise NotImplementedError(location)
    return LocalWorkFolder(Path(location))
