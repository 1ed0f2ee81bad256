"""Inputs that are URLs, by `fsspec`: whatever file system it knows, such as `s3://`, is read like a local file.

Requests are what costs: a listing tells the sizes and times of all its files, so none of them is asked about again
before it is opened, and opening tells whether it is still the same. Whatever a file system raises becomes an `OSError`
that names the URL (`RemoteInputError` where it is not a missing or forbidden file).
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
# What file systems call the time of the last change in their listings.
TIME_FIELDS = ("LastModified", "last_modified", "mtime", "modified", "updated")
ETAG_FIELDS = ("ETag", "etag")
# Errors of the operating system that stay what they are; all others of a file system are a RemoteInputError.
_KEPT = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES, IsADirectoryError: errno.EISDIR}

# What a file system tells about a file: "size", "type" and, under one of many names, its time.
About: TypeAlias = Mapping[str, Any]


class Status(NamedTuple):
    """What differs when a remote file was changed."""

    num_bytes: int
    modified_ns: int | None  # None where the file system does not tell
    etag: str | None = None  # what an object store calls this version of the file


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    fsspec = load_fsspec()
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # no plug-in installed; no such protocol
        raise CorpusError(f"{url}: no file system for this URL: {error}") from error
    return system, path


def ask(url: str) -> About:
    """What the file system tells about one file or folder, now."""
    with named_errors(url):
        system, path = file_system(url)
        system.invalidate_cache(path)
        about: About = system.info(path)
        return about


def list_files(url: str) -> dict[str, About]:
    """The URLs of the files that match a glob or lie below a folder, hidden ones left out there, and their listing."""
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
    """The size and the time of the last change: by what is known `about` the file where that is enough, else asked for.

    The time is in nanoseconds, and None where the file system does not tell it.
    """
    with named_errors(url):
        system, path = file_system(url)
        if about is None or about.get("size") is None:
            about = ask(url)
        size = about.get("size")
        if size is None:
            raise CorpusError(f"{url}: the server does not report its size, so truncation could not be detected.")
        time = _time_of(about)
        if time is None:
            with contextlib.suppress(NotImplementedError):
                time = _nanoseconds(system.modified(path))
        return Status(int(size), time, _etag_of(about))


def is_known(about: About) -> bool:
    """Whether `status` need not ask the file system about a file."""
    return about.get("size") is not None and _time_of(about) is not None


class RemoteFile:
    """A file of a URL, open for reading."""

    def __init__(self, url: str, block_bytes: int = BLOCK_BYTES) -> None:
        self._url = url
        self.closed = False
        with named_errors(url):
            system, path = file_system(url)
            system.invalidate_cache(path)  # opening asks for the size, and is to get that of now
            file = system.open(path, "rb", block_size=block_bytes)
            # memory:// gives everyone the same object, but each reader needs a position of its own.
            self._file = io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else file

    def status(self, *, with_time: bool) -> Status:
        """The size and time of what was opened, by the answer to opening it where that tells them."""
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
    """Turn what a file system raises into an OSError that names the URL and the cause.

    Plug-ins raise what the libraries below them do: errors of aiohttp and botocore, ValueError, NotImplementedError.
    """
    try:
        yield
    except (GristmillError, MemoryError):
        raise
    except Exception as error:
        cause = " ".join(str(error).split())
        if cause in url and error.__cause__ is not None:  # FileNotFoundError(url) from what really went wrong
            cause = f"{type(error.__cause__).__name__}: {error.__cause__}"
        for kind, number in _KEPT.items():
            if isinstance(error, kind):
                raise kind(number, cause or os.strerror(number), url) from error
        raise RemoteInputError(
            f"{url}: its file system failed with {type(error).__name__}: {cause or 'no message'}. "
            f"Check the URL and the credentials, and run again{SKIP_ADVICE}."
        ) from error


def _time_of(about: About) -> int | None:
    """The time of the last change, None where a listing does not tell it in a form that is known."""
    for name in TIME_FIELDS:
        value = about.get(name)
        if isinstance(value, datetime) or (isinstance(value, int | float) and not isinstance(value, bool)):
            return _nanoseconds(value)
    return None


def _etag_of(about: About) -> str | None:
    """The tag that an object store gives each version of a file, None where there is none."""
    for name in ETAG_FIELDS:
        value = about.get(name)
        if isinstance(value, str) and value:
            return value.strip('"')
    return None


def _nanoseconds(time: datetime | float) -> int:
    """Whole microseconds: a float of seconds has no more digits."""
    seconds = time.timestamp() if isinstance(time, datetime) else time
    return round(seconds * 1e6) * 1000


def is_glob(url: str) -> bool:
    """Whether a URL is a glob; the question mark of a web address is none."""
    return glob.has_magic(url.replace("?", "") if url.startswith("http") else url)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
