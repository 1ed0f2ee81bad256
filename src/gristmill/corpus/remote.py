"""Inputs that are URLs, through `fsspec`: any of its file systems, such as `s3://`, is read like local files.

Requests are expensive. A listing has the sizes and times of all its files, so no file is queried again before it is
opened, and opening it shows whether it has changed. Every error of a file system becomes an `OSError` that names the
URL: `RemoteInputError` unless the file is missing or forbidden.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from gristmill.corpus.inputs import SKIP_ADVICE
from gristmill.corpus.packages import load_fsspec
from gristmill.errors import CorpusError, GristmillError, RemoteInputError

BLOCK_BYTES = 4 << 20
# Names of the modification time in the listings of file systems.
TIME_FIELDS = ("LastModified", "last_modified", "mtime", "modified", "updated")
ETAG_FIELDS = ("ETag", "etag")
# Errors of a file system that keep their type; all others become a RemoteInputError.
_KEPT = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES, IsADirectoryError: errno.EISDIR}

# Information of a file system about a file: "size", "type" and, under one of several names, its modification time.
About: TypeAlias = Mapping[str, Any]


class Status(NamedTuple):
    """Values that change when a remote file is changed."""

    num_bytes: int
    modified_ns: int | None  # None if the file system does not report it
    etag: str | None = None  # version tag of an object store


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    fsspec = load_fsspec()
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # the plug-in is not installed, or the protocol is unknown
        raise CorpusError(f"{url}: no file system for this URL: {error}") from error
    return system, path


def ask(url: str) -> About:
    """Return the current information of the file system about one file or folder."""
    with named_errors(url):
        system, path = file_system(url)
        system.invalidate_cache(path)
        about: About = system.info(path)
        return about


def list_files(url: str) -> dict[str, About]:
    """Return the URLs of the files that match a glob, or of the visible files in a folder, with their listing."""
    with named_errors(url):
        system, path = file_system(url)
        system.invalidate_cache()
        if is_glob(url):
            found = system.glob(path, detail=True)
            names = [name for name, about in found.items() if about["type"] == "file"]
        else:
            found = system.find(path, detail=True)
            names = [name for name in found if not _is_hidden(name[len(path) :])]
        urls = {str(system.unstrip_protocol(name)): found[name] for name in names}
    return dict(sorted(urls.items(), key=lambda item: os.fsencode(item[0])))


def status(url: str, about: About | None = None) -> Status:
    """Return the size and modification time of a file, from `about` if that is enough, otherwise by a request.

    The time is in nanoseconds; None if the file system does not report it.
    """
    with named_errors(url):
        system, path = file_system(url)
        if about is None or about.get("size") is None:
            about = ask(url)
        size = about.get("size")
        if size is None:
            raise CorpusError(
                f"{url}: the server does not report its size, so truncation could not be detected. Download it first."
            )
        time = _time_of(about)
        if time is None:
            with contextlib.suppress(NotImplementedError):
                time = _nanoseconds(system.modified(path))
        return Status(int(size), time, _etag_of(about))


def is_known(about: About) -> bool:
    """Whether `about` is enough for `status`, without another request."""
    return about.get("size") is not None and _time_of(about) is not None


class RemoteFile:
    """A remote file, open for reading."""

    def __init__(self, url: str, block_bytes: int = BLOCK_BYTES) -> None:
        self._url = url
        self.closed = False
        with named_errors(url):
            system, path = file_system(url)
            system.invalidate_cache(path)  # so that opening gets the current size
            file = system.open(path, "rb", block_size=block_bytes)
            # memory:// returns the same object to all callers, but each reader needs its own position.
            self._file = io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else file

    def status(self, *, with_time: bool) -> Status:
        """Return the size and time of the opened file, from the response to opening it if it has them."""
        with named_errors(self._url):
            about = getattr(self._file, "details", None)
        if isinstance(about, Mapping) and about.get("size") is not None:
            time = _time_of(about)
            if time is not None or not with_time:
                return Status(int(about["size"]), time, _etag_of(about))
        return status(self._url)

    def read(self, size: int = -1) -> bytes:
        with named_errors(self._url):
            return bytes(self._file.read(size))

    def readinto(self, buffer: memoryview) -> int:
        with named_errors(self._url):
            return int(self._file.readinto(buffer) or 0)

    def seek(self, position: int, whence: int = 0) -> int:
        with named_errors(self._url):
            self._file.seek(position, whence)
            return self.tell()

    def tell(self) -> int:
        with named_errors(self._url):
            return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
        with named_errors(self._url):
            self._file.close()


@contextlib.contextmanager
def named_errors(url: str) -> Iterator[None]:
    """Turn any error of a file system into an OSError that names the URL and the cause.

    Plug-ins raise the errors of the libraries they use: aiohttp, botocore, ValueError, NotImplementedError.
    """
    try:
        yield
    except (GristmillError, MemoryError):
        raise
    except Exception as error:
        cause = " ".join(str(error).split())
        if cause in url and error.__cause__ is not None:  # FileNotFoundError(url) raised from the real cause
            cause = f"{type(error.__cause__).__name__}: {error.__cause__}"
        for kind, number in _KEPT.items():
            if isinstance(error, kind):
                raise kind(number, cause or os.strerror(number), url) from error
        raise RemoteInputError(
            f"{url}: its file system failed with {type(error).__name__}: {cause or 'no message'}. "
            f"Check the URL and the credentials, and run again{SKIP_ADVICE}."
        ) from error


def _time_of(about: About) -> int | None:
    """Return the modification time; None if the listing does not have it in a known form."""
    for name in TIME_FIELDS:
        value = about.get(name)
        if isinstance(value, datetime) or (isinstance(value, int | float) and not isinstance(value, bool)):
            return _nanoseconds(value)
    return None


def _etag_of(about: About) -> str | None:
    """Return the tag that an object store gives each version of a file; None if it has no tag."""
    for name in ETAG_FIELDS:
        value = about.get(name)
        if isinstance(value, str) and value:
            return value.strip('"')
    return None


def _nanoseconds(time: datetime | float) -> int:
    """Return the time in nanoseconds, rounded to microseconds, the precision of a float of seconds."""
    seconds = time.timestamp() if isinstance(time, datetime) else time
    return round(seconds * 1e6) * 1000


def is_glob(url: str) -> bool:
    """Whether a URL is a glob. The question mark of a web address does not count."""
    return glob.has_magic(url.replace("?", "") if url.startswith("http") else url)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
