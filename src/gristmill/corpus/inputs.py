"""Inputs of a corpus: files and URLs, and checks that they have not changed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from gristmill.errors import InputChangedError

# End of the advice in the error of an input. `skipped.without_skip_advice` removes it where it does not apply.
SKIP_ADVICE = ", or pass on_error='skip'"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://\S+")


@dataclass(frozen=True, slots=True)
class Input:
    """One file or URL, as it was found."""

    name: str
    format: str  # a key of READERS
    compression: str  # "", "gz" or "zst"
    num_bytes: int  # on disk
    modified_ns: int | None  # None if the file system does not report it
    etag: str | None = None  # version tag of an object store
    # Error of a URL whose status could not be read. Opening it raises this error, so that on_error="skip" skips it.
    failure: OSError | None = field(default=None, compare=False)

    @property
    def shown(self) -> str:
        """The name as shown in messages."""
        return shown(self.name)

    @property
    def is_local(self) -> bool:
        """Whether this is a local file."""
        return not is_url(self.name)


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Inputs in the order in which they are read."""

    inputs: tuple[Input, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(input.name for input in self.inputs)

    @property
    def num_bytes(self) -> int:
        """Size on disk of all inputs together."""
        return sum(input.num_bytes for input in self.inputs)

    @property
    def is_plain_text(self) -> bool:
        """Whether all inputs are local, uncompressed text files, which the core can read itself."""
        return all(input.is_local and input.format == "text" and not input.compression for input in self.inputs)


def shown(name: str | os.PathLike[str]) -> str:
    r"""Return a name or path as shown in messages: on one line, with control characters escaped.

    >>> shown("data/a.txt"), shown("a\nb.txt")
    ('data/a.txt', 'a\\nb.txt')
    """
    text = os.fsdecode(name)
    return text if text.isprintable() else repr(text)[1:-1]


def is_url(name: str) -> bool:
    """Whether `name` is a URL and not a path.

    >>> is_url("s3://bucket/a.txt"), is_url("simplecache::s3://bucket/a.txt"), is_url("data/a.txt")
    (True, True, False)
    """
    return _URL.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class FileState:
    """Values that change when a local file is written to or replaced."""

    size: int
    modified_ns: int
    device: int
    inode: int

    @classmethod
    def from_file(cls, file: int | str) -> FileState:
        """Return the state of an open file, or of the file with this name."""
        status = os.stat(file)  # noqa: PTH116  a descriptor is not a Path
        return cls(status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino)


def changed(name: str, how: str) -> InputChangedError:
    """Return the error for an input that has changed."""
    return InputChangedError(f"{shown(name)} changed while it was read: {how}. Run again when the file is complete.")


def check_state(name: str, before: FileState, now: FileState) -> None:
    """Raise if a file has changed."""
    if now.size != before.size:
        raise changed(name, f"{before.size} bytes became {now.size}")
    if now != before:
        raise changed(name, "it was written to or replaced")
