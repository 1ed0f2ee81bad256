"""Files of a corpus: paths and globs -> regular files that can be read."""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gristmill.errors import CorpusError

# Bytes of these are no text; counting them as such would be a silent waste of an hour.
PACKED_SUFFIXES = frozenset({".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".parquet", ".arrow", ".feather"})
MAX_NAME_CHARACTERS = 1024
_LINE_BREAK = re.compile(r"[\n\r\0]")
_SPACES = re.compile(r"\s\S+\s")
_LETTER = re.compile(r"[^\W_]")
_KNOWN_SUFFIX = re.compile(r"\.(txt|text|md|jsonl?|csv|tsv|html?|xml|gz|bz2|xz|zst|parquet)$", re.IGNORECASE)
_FOLDERS = re.compile(r"(~?/)?[\w.*-]+(/[\w.*-]+)+/?")


@dataclass(frozen=True)
class Files:
    """Regular files, in the order in which they are read."""

    paths: tuple[str, ...]
    num_bytes: int


def find_files(names: Sequence[str | os.PathLike[str]]) -> Files:
    """The files that `names` mean, each of them checked: there, regular, readable, not compressed."""
    paths: list[str] = []
    for index, name in enumerate(names):
        if not isinstance(name, str | os.PathLike):
            raise TypeError(f"item {index} of the corpus is a {type(name).__name__}, among paths. Pass only paths.")
        paths += _expand(os.fspath(name))
    return Files(tuple(paths), sum(_checked_size(path) for path in paths))


def could_be_path(text: str) -> bool:
    """Whether a string in a list may be taken for a path at all: one short line with a letter or digit in it."""
    return len(text) <= MAX_NAME_CHARACTERS and _LINE_BREAK.search(text) is None and _LETTER.search(text) is not None


def names_something(text: str) -> bool:
    """Whether `text` is the name of something on the disk, or a glob that matches something."""
    if not could_be_path(text):
        return False
    try:
        return os.path.lexists(text) or (glob.has_magic(text) and next(_matches(text), None) is not None)
    except (OSError, ValueError, re.error):
        return False


def looks_like_path(text: str) -> bool:
    """Whether `text`, which names nothing on the disk, was probably meant to.

    >>> looks_like_path("data/train"), looks_like_path("my corpus.txt"), looks_like_path("Once upon a time")
    (True, True, False)
    """
    return _KNOWN_SUFFIX.search(text) is not None or _FOLDERS.fullmatch(text) is not None


def _expand(name: str) -> list[str]:
    """The files that match where `name` is a glob, else `name`. A file whose name looks like a glob is a file."""
    if not isinstance(name, str):
        raise TypeError(f"the path {name!r} is {type(name).__name__}. Pass a str or pathlib.Path.")
    if not glob.has_magic(name) or os.path.lexists(name):
        return [name]
    paths = sorted((path for path in _matches(name) if not Path(path).is_dir()), key=os.fsencode)
    if not paths:
        raise FileNotFoundError(errno.ENOENT, "No file matches the glob", name)
    return paths


def _matches(pattern: str) -> Iterator[str]:
    return glob.iglob(pattern, recursive=True)  # noqa: PTH207  Path.glob wants the folder apart


def _checked_size(path: str) -> int:
    try:
        status = Path(path).stat()  # FileNotFoundError names the path
    except (OSError, ValueError) as error:
        if could_be_path(path) and not _SPACES.search(path):
            raise
        short = path if len(path) <= 80 else path[:80] + "…"
        raise FileNotFoundError(errno.ENOENT, "No such file; to pass one text, pass [text]", short) from error
    if stat.S_ISDIR(status.st_mode):
        example = str(Path(path, "**", "*.txt"))
        raise IsADirectoryError(errno.EISDIR, f"Is a directory; pass a glob such as {example!r}", path)
    if not stat.S_ISREG(status.st_mode):
        raise CorpusError(
            f"{path}: not a regular file but a pipe or device, which cannot be shared among threads. "
            f"Write it to a file first, or pass an iterable of documents."
        )
    if Path(path).suffix.lower() == ".gmw":
        raise CorpusError(f"{path}: is a table of counted words, not text. Pass Words.load({path!r}) to train from it.")
    if Path(path).suffix.lower() in PACKED_SUFFIXES:
        raise CorpusError(
            f"{path}: a {Path(path).suffix} file is not plain text. Unpack it, or pass an iterable of its documents."
        )
    with Path(path).open("rb"):  # PermissionError now, not after an hour of counting other files
        return status.st_size
