"""`RemoteWorkFolder`: a work folder at a URL, such as `s3://bucket/work`, through `fsspec`.

An object store shows an object only when it is complete; on other file systems, a file is written under a temporary
name and renamed. In both cases it is written to a local temporary file first, so a task that fails sends nothing.
Listings are not cached, because other machines write to the same folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gristmill.corpus.inputs import SKIP_ADVICE
from gristmill.corpus.remote import file_system, named_errors, status
from gristmill.errors import FormatError, OptionError, RemoteInputError
from gristmill.executors.work_folder import (
    LEFTOVER_SECONDS,
    MAX_READ_BYTES,
    LocalFile,
    WorkFolder,
    check_name,
    is_temporary,
)

# Storages in which an object appears when it is complete. All others may show a partial file.
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "tos"}
READ_ONLY = {"http", "https", "ftp", "github", "zip", "tar", "data"}
# Size of one request, and of the part of a file that a worker holds in memory.
BLOCK_BYTES = 16 << 20
# By default, s3fs holds 10 blocks of 50 MB of a file that it uploads.
_PUT_OPTIONS = {"s3": {"chunksize": BLOCK_BYTES, "max_concurrency": 2}}
_PUT_OPTIONS["s3a"] = _PUT_OPTIONS["s3"]


class RemoteWorkFolder(WorkFolder):
    """A work folder at a URL."""

    def __init__(self, url: str) -> None:
        self.location = url.rstrip("/")
        self._protocol = url.partition("://")[0].lower()
        if "::" in self._protocol or self._protocol in READ_ONLY:
            raise OptionError(
                f"{url} cannot be written to. Pass a folder that all workers can access, or a URL of a writable "
                f"storage such as 's3://bucket/name'."
            )

    def read(self, name: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        data = self._range(name, 0, max_bytes + 1)  # one request, without asking for the size
        if len(data) > max_bytes:
            raise FormatError(f"{self._url(name)}: has more than {max_bytes:,} bytes. The file is damaged.")
        return data

    def size(self, name: str) -> int | None:
        try:
            with self._at(name) as (system, path):
                system.invalidate_cache(system._parent(path))
                about = system.info(path)
        except FileNotFoundError:
            return None
        return int(about["size"]) if about.get("type") == "file" else None

    @contextlib.contextmanager
    def create(self, name: str, *, durable: bool = True) -> Iterator[BinaryIO]:
        with tempfile.NamedTemporaryFile(prefix="gristmill-") as file:
            yield file  # type: ignore[misc]
            file.flush()
            self._put(Path(file.name), name)

    @contextlib.contextmanager
    def as_local_file(self, name: str, begin: int = 0, end: int | None = None) -> Iterator[LocalFile]:
        with tempfile.NamedTemporaryFile(prefix="gristmill-") as file:
            self._fetch(name, begin, end, file)
            file.flush()
            yield LocalFile(Path(file.name), 0)

    def discard(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._at(name) as (system, path):
            system.rm_file(path)

    def names(self) -> list[str]:
        try:
            with self._at() as (system, path):
                system.invalidate_cache(path)
                found = system.ls(path, detail=False)
        except FileNotFoundError:
            return []
        return [name for name in (str(entry).rstrip("/").rpartition("/")[2] for entry in found) if name]

    def remove(self) -> None:
        """Remove all files; a second pass finds a file that a late worker adds meanwhile."""
        for _ in range(2):
            names = self.names()
            with contextlib.suppress(FileNotFoundError), self._at() as (system, path):
                if names:
                    system.rm(path, recursive=True)

    def discard_leftovers(self) -> None:
        """Keep those written to in the last hour: they may belong to a worker that this process does not know."""
        for name in filter(is_temporary, self.names()):
            with contextlib.suppress(FileNotFoundError):
                modified_ns = status(self._url(name)).modified_ns
                if modified_ns is None or modified_ns < (time.time() - LEFTOVER_SECONDS) * 1e9:
                    self.discard(name)

    def _put(self, source: Path, name: str) -> None:
        with self._at(name) as (system, path):
            if self._protocol in OBJECT_STORES:
                system.put_file(str(source), path, **_PUT_OPTIONS.get(self._protocol, {}))
                return
            system.makedirs(system._parent(path), exist_ok=True)
            temporary = f".{name}.tmp.{os.getpid()}.{int.from_bytes(os.urandom(6))}"
            try:
                temporary_path = file_system(self._url(temporary))[1]
                system.put_file(str(source), temporary_path)
                _move(system, temporary_path, path)
            except BaseException:
                with contextlib.suppress(Exception):
                    self.discard(temporary)
                raise

    def _fetch(self, name: str, begin: int, end: int | None, file: Any) -> None:
        """Write the bytes from `begin` to `end`, or to the end of the file, to a local file."""
        if end is None:
            end = self.size(name)
            if end is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._url(name))
        for first in range(begin, end, BLOCK_BYTES):
            last = min(first + BLOCK_BYTES, end)
            data = self._range(name, first, last)
            file.write(data)
            if len(data) < last - first:
                return

    def _range(self, name: str, begin: int, end: int) -> bytes:
        """Return the bytes from `begin` to `end`, or to the end of the file."""
        try:
            with self._at(name) as (system, path):
                return bytes(system.cat_file(path, start=begin, end=end))
        except RemoteInputError:
            size = self.size(name)
            if size is None or begin < size:
                raise
            return b""  # object stores reject a range that begins at or after the end

    def _url(self, name: str | None = None) -> str:
        return self.location if name is None else f"{self.location}/{check_name(name)}"

    @contextlib.contextmanager
    def _at(self, name: str | None = None) -> Iterator[tuple[Any, str]]:
        """The file system, and the path of a file in it. Errors name the URL, without the advice to skip the input."""
        try:
            with named_errors(self._url(name)):
                yield file_system(self._url(name))
        except RemoteInputError as error:
            raise RemoteInputError(str(error).replace(SKIP_ADVICE, "")) from error


def _move(system: Any, source: str, target: str) -> None:
    """Rename a file, and replace an existing target: some file systems do not."""
    try:
        system.mv(source, target)
    except Exception:
        if not system.exists(target):
            raise
        system.rm_file(target)
        system.mv(source, target)
