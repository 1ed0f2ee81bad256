"""Inputs that are URLs, by `fsspec`: whatever file system it knows, such as `s3://`, is read like a local file."""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import os
from typing import Any

from gristmill.corpus.packages import load_fsspec
from gristmill.errors import CorpusError

BLOCK_BYTES = 4 << 20


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    fsspec = load_fsspec()
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:  # no plug-in installed; no such protocol
        raise CorpusError(f"{url}: no file system for this URL: {error}") from error
    return system, path


def expand(url: str) -> tuple[list[str], bool]:
    """The URLs of the files that `url` means, and whether that is because it is a folder."""
    system, path = file_system(url)
    if _is_glob(url):
        found = system.glob(path, detail=True)
        paths = [name for name, about in found.items() if about["type"] == "file"]
        if not paths:
            raise FileNotFoundError(errno.ENOENT, "No file matches the glob", url)
    elif "::" in url or system.info(path)["type"] != "directory":
        return [url], False
    else:
        paths = [name for name in system.find(path) if not _is_hidden(name[len(path) :])]
    urls = [str(system.unstrip_protocol(name)) for name in paths]
    return sorted(urls, key=os.fsencode), not _is_glob(url)


def status(url: str) -> tuple[int, int | None]:
    """The size and the time of the last change in nanoseconds, None where the file system does not tell."""
    system, path = file_system(url)
    system.invalidate_cache(path)
    size = system.info(path)["size"]
    if size is None:
        raise CorpusError(f"{url}: the server does not tell its size, so that a part could not be told from the whole.")
    with contextlib.suppress(NotImplementedError):
        # Whole microseconds: a float of seconds has no more digits.
        return int(size), round(system.modified(path).timestamp() * 1e6) * 1000
    return int(size), None


def open_file(url: str) -> Any:
    """A file object of the URL, for reading."""
    system, path = file_system(url)
    file = system.open(path, "rb", block_size=BLOCK_BYTES)
    # memory:// gives everyone the same object, but each reader needs a position of its own.
    return io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else file


def _is_glob(url: str) -> bool:
    """Whether a URL is a glob; the question mark of a web address is none."""
    return glob.has_magic(url.replace("?", "") if url.startswith("http") else url)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
