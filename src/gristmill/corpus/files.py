"""Files of a corpus: paths, globs, folders and URLs -> inputs that can be read."""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from gristmill.corpus import remote, walk
from gristmill.corpus.formats import READERS, load_packages
from gristmill.corpus.inputs import FoundFiles, Input, is_url, shown
from gristmill.corpus.options import Reading
from gristmill.corpus.skipped import count_suffixes, warn_of_left_out
from gristmill.corpus.threads import PATIENCE_SECONDS, map_in_order
from gristmill.errors import CorpusError, RemoteInputError

__all__ = [
    "FoundFiles",
    "Input",
    "are_plain_texts",
    "could_be_path",
    "find_files",
    "is_punctuation",
    "looks_like_path",
    "looks_like_text",
    "names_something",
    "which_name_something",
]

COMPRESSIONS = {".gz": "gz", ".zst": "zst", ".zstd": "zst"}
# These files are not text; counting them as text would silently waste an hour.
PACKED_SUFFIXES = frozenset({".bz2", ".xz", ".lz4", ".zip", ".7z", ".tar", ".tgz"})
BINARY_SUFFIXES = {
    **dict.fromkeys((".bin", ".idx", ".npy", ".npz"), "contains numbers, such as token ids, not text"),
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".safetensors", ".gguf"), "contains a model, not text"),
    **dict.fromkeys((".tiktoken", ".model"), "contains a tokenizer, not text"),
    **dict.fromkeys((".pdf", ".doc", ".docx", ".epub"), "is a document of another program, not plain text"),
}
MAX_NAME_CHARACTERS = 1024
# Limit of files and folders to check which strings of a list are globs. A text that looks like a glob, such as
# "/** a comment */", must not start a search of the whole disk.
MAX_ENTRIES_LOOKED_AT = 10_000
NUM_REQUESTS = 16  # concurrent requests
_LINE_BREAK = re.compile(r"[\n\r\0]")
_WORDS = re.compile(r"\s\S+\s")
_LETTER = re.compile(r"[^\W_]")
# Common suffixes that no reader handles.
_OTHER_SUFFIXES = (".md", ".csv", ".tsv", ".htm", ".html", ".xml")
_FOLDERS = re.compile(r"(~?/)?[\w.*-]+(/[\w.*-]+)+/?")

Item = TypeVar("Item")
Result = TypeVar("Result")


def find_files(names: Sequence[str | os.PathLike[str]], reading: Reading) -> FoundFiles:
    """Return the inputs of `names`. Checks that each exists, is a readable regular file, and has a supported format."""
    for index, name in enumerate(names):
        if not isinstance(name, str | os.PathLike):
            raise TypeError(
                f"item {index} of the corpus is of type {type(name).__name__}, but other items are paths. Pass only "
                f"paths."
            )
    texts = [os.fspath(name) for name in names]
    left_out: list[tuple[str, str]] = []
    are_remote = sum(isinstance(name, str) and is_url(name) for name in texts) > 1
    places = list(
        chain.from_iterable(_map(partial(_expand, reading=reading, left_out=left_out), texts, at_once=are_remote))
    )
    are_unknown = sum(place.about is not None and not remote.is_known(place.about) for place in places) > 1
    inputs = tuple(_map(partial(_found, reading=reading), places, at_once=are_unknown))
    for input in {(input.format, input.compression, input.is_local): input for input in inputs}.values():
        load_packages(input)
    warn_of_left_out(left_out)
    return FoundFiles(inputs)


class _Place(NamedTuple):
    """A file that was found, with its listing if there is one."""

    name: str
    about: remote.About | None = None  # of a URL
    failure: OSError | None = None


def _map(work: Callable[[Item], Result], items: Sequence[Item], *, at_once: bool) -> Iterable[Result]:
    """Return `work(item)` of every item, in order. `at_once` uses several threads, for requests to other machines."""
    if not at_once:
        return map(work, items)
    return map_in_order(work, items, num_threads=NUM_REQUESTS, patience=PATIENCE_SECONDS)


def are_plain_texts(files: FoundFiles, reading: Reading) -> bool:
    """Whether each file is one uncompressed text, so that a counter can read any part of it itself.

    False with on_error="skip", because the counts of a file that turns out to be unreadable cannot be undone.
    """
    return files.is_plain_text and reading.documents == "file" and reading.on_error == "raise"


def could_be_path(text: str) -> bool:
    """Whether a string in a list may be a path: one short line."""
    return len(text) <= MAX_NAME_CHARACTERS and _LINE_BREAK.search(text) is None


def is_punctuation(text: str) -> bool:
    """Whether `text` has no letter or digit. "." and "*" are paths in a list of paths, and texts in a list of texts."""
    return _LETTER.search(text) is None


def which_name_something(strings: Sequence[str]) -> list[bool]:
    """Return `names_something` for each string; if that is None, whether the string looks like a path."""
    search = walk.BoundedSearch(MAX_ENTRIES_LOOKED_AT)
    found = (names_something(text, search) for text in strings)
    return [looks_like_path(text) if known is None else known for text, known in zip(strings, found, strict=True)]


def names_something(text: str, search: walk.BoundedSearch | None = None) -> bool | None:
    """Whether `text` is a URL, an existing path, or a glob that matches something.

    None for a glob if a short search cannot decide: there are too many files, or a folder cannot be listed.
    """
    if not could_be_path(text):
        return False
    try:
        if is_url(text) or os.path.lexists(text):
            return True
        return glob.has_magic(text) and (search or walk.BoundedSearch(MAX_ENTRIES_LOOKED_AT)).has_match(text)
    except (OSError, ValueError, re.error):
        return False


def looks_like_text(text: str) -> bool:
    """Whether a bare string is a text rather than a path: too long for a path, several lines, or several words.

    >>> looks_like_text("Once upon a time"), looks_like_text("my corpus.txt")
    (True, False)
    """
    return len(text) > MAX_NAME_CHARACTERS or "\n" in text or _WORDS.search(text) is not None


def looks_like_path(text: str) -> bool:
    """Whether `text`, which names no file, was probably meant as a path.

    >>> looks_like_path("data/train"), looks_like_path("my corpus.txt"), looks_like_path("Once upon a time")
    (True, True, False)
    """
    read = {suffix for reader in READERS.values() for suffix in (*reader.suffixes, *reader.asked_suffixes)}
    suffixes = {*read, *COMPRESSIONS, *PACKED_SUFFIXES, *_OTHER_SUFFIXES}
    return Path(text).suffix.lower() in suffixes or _FOLDERS.fullmatch(text) is not None


def _expand(name: str, *, reading: Reading, left_out: list[tuple[str, str]]) -> list[_Place]:
    """Return the files of `name`: the matches of a glob, the files in a folder, or the file itself.

    left_out: receives (folder, name) of each skipped file of a folder.
    """
    if not isinstance(name, str):
        raise TypeError(f"the path {name!r} is of type {type(name).__name__}. Pass a str or pathlib.Path.")
    if not name:
        raise FileNotFoundError(errno.ENOENT, "The path is empty; for the current folder, pass '.'", name)
    if name.startswith(("file://", "local://")):
        name = _local_path(name.split("://", 1)[1])
    elif is_url(name):
        return _expand_url(name, reading, left_out)
    if os.path.isdir(name):  # noqa: PTH112  a Path raises for a name that is too long
        if _is_ours(Path(name) / "manifest.json", "gristmill-shards"):
            raise CorpusError(
                f"{shown(name)}: contains token shards, not text. Pass the text that they were made from."
            )
        return [_Place(path) for path in _of_format(walk.files_below(name), name, reading, left_out)]
    if not glob.has_magic(name) or os.path.lexists(name):  # a file whose name looks like a glob is a file
        return [_Place(name)]
    paths = walk.files_that_match(name)
    if not paths:
        raise FileNotFoundError(errno.ENOENT, "No file matches the glob", name)
    return [_Place(path) for path in paths]


def _expand_url(url: str, reading: Reading, left_out: list[tuple[str, str]]) -> list[_Place]:
    if remote.is_glob(url):
        listed = remote.list_files(url)
        if not listed:
            raise FileNotFoundError(errno.ENOENT, "No file matches the glob", url)
        return [_Place(name, about) for name, about in listed.items()]
    try:
        about = remote.ask(url)
    except RemoteInputError as error:
        if reading.on_error == "raise":
            raise
        return [_Place(url, failure=error)]
    if "::" in url or about["type"] != "directory":
        return [_Place(url, about)]
    listed = remote.list_files(url)
    return [_Place(name, listed[name]) for name in _of_format(list(listed), url, reading, left_out)]


def _local_path(path: str) -> str:
    """Return the path of a file:// URL, which may or may not be percent-encoded."""
    from urllib.parse import unquote  # not at the top: it takes longer to import than a small corpus to count

    return path if os.path.lexists(path) else unquote(path)


def _of_format(names: list[str], folder: str, reading: Reading, left_out: list[tuple[str, str]]) -> list[str]:
    """Return the files of a folder that have a suffix of the format. Folders usually contain other files too."""
    if reading.input_format == "auto":
        suffixes = {suffix for reader in READERS.values() for suffix in reader.suffixes}
    else:
        reader = READERS[reading.input_format]
        suffixes = {*reader.suffixes, *reader.asked_suffixes}
    found = [name for name in names if _suffixes(name)[0] in suffixes]
    if not found:
        known = ", ".join(sorted(suffixes))
        others = f"; it contains {count_suffixes(names)}" if names else "; it contains no files"
        raise FileNotFoundError(
            errno.ENOENT, f"No file with a known suffix in this folder ({known}, each also .gz or .zst){others}", folder
        )
    if reading.input_format == "auto":  # otherwise the caller chose the suffixes
        kept = frozenset(found)
        left_out += [(folder, name) for name in names if name not in kept]
    return found


def _is_ours(path: Path, format: str) -> bool:
    """Whether a file begins like Gristmill's JSON files of this format."""
    try:
        with path.open("rb") as file:
            return f'"format": "{format}"'.encode() in file.read(80)
    except OSError:
        return False


def _suffixes(name: str) -> tuple[str, str]:
    """Return the suffixes of the format and of the compression, each "" if missing.

    >>> _suffixes("data/part-0.jsonl.zst"), _suffixes("corpus.gz"), _suffixes("https://host/a.TXT?v=1.gz")
    (('.jsonl', '.zst'), ('', '.gz'), ('.txt', ''))
    """
    if name.startswith(("http://", "https://")):
        name = re.split("[?#]", name, maxsplit=1)[0]
    stem, suffix = os.path.splitext(name.lower())  # noqa: PTH122  a URL is not a Path
    if suffix not in COMPRESSIONS:
        return suffix, ""
    return os.path.splitext(stem)[1], suffix  # noqa: PTH122


def _found(place: _Place, *, reading: Reading) -> Input:
    name = place.name
    format, compression = _format_of(name, reading)
    if not is_url(name):
        return Input(name, format, compression, *_local_status(name))
    failure = place.failure
    if failure is None:
        try:
            return Input(name, format, compression, *remote.status(name, place.about))
        except RemoteInputError as error:
            if reading.on_error == "raise":
                raise
            failure = error
    return Input(name, format, compression, 0, None, failure=failure)


def _format_of(name: str, reading: Reading) -> tuple[str, str]:
    """Return the format and the compression of a file, by its name and the read options."""
    suffix, packed = _suffixes(name)
    place = shown(name)
    if suffix == ".gmw":
        raise CorpusError(f"{place}: is a table of counted words, not text. Words.load(path) reads it.")
    if suffix in PACKED_SUFFIXES:
        raise CorpusError(
            f"{place}: a {suffix} file is not plain text, and only .gz and .zst are decompressed. Decompress it first."
        )
    format = reading.input_format
    if format == "auto":
        if suffix in BINARY_SUFFIXES:
            raise CorpusError(
                f"{place}: a {suffix} file {BINARY_SUFFIXES[suffix]}. "
                f"Pass text files, or input_format='text' to read it as plain text."
            )
        if suffix == ".json" and not is_url(name) and _is_ours(Path(name), "gristmill-tokenizer"):
            raise CorpusError(f"{place} is a Gristmill tokenizer, not text. Pass the text to read.")
        format = next((format for format, reader in READERS.items() if suffix in reader.suffixes), "text")
        asked = next((format for format, reader in READERS.items() if suffix in reader.asked_suffixes), "")
        if asked:
            raise CorpusError(
                f"{place}: the format of a {suffix} file is ambiguous. Pass input_format={asked!r}"
                + (" if it has one object per line" if asked == "jsonl" else "")
                + ", or input_format='text' to read it as plain text."
            )
    if packed and not READERS[format].may_be_compressed:
        raise CorpusError(
            f"{place}: a compressed {format} file cannot be read, because it needs random access. Decompress it first."
        )
    return format, COMPRESSIONS.get(packed, "")


def _local_status(path: str) -> tuple[int, int]:
    """Return the size and modification time of a regular, readable file."""
    try:
        status = os.stat(path)  # noqa: PTH116  FileNotFoundError names the path; a Path would take as long as the call
    except (OSError, ValueError) as error:
        if os.path.islink(path):  # noqa: PTH114
            reason = f"Broken symbolic link to {os.readlink(path)!r}; correct or remove it"  # noqa: PTH115
            raise FileNotFoundError(errno.ENOENT, reason, path) from error
        if isinstance(error, OSError) and len(path) <= MAX_NAME_CHARACTERS:
            raise
        short = path if len(path) <= 80 else path[:80] + "…"
        raise FileNotFoundError(errno.ENOENT, "Not a valid file name", short) from error
    if not stat.S_ISREG(status.st_mode):
        raise CorpusError(
            f"{shown(path)}: not a regular file but a pipe or device, which several threads cannot read. "
            f"Write its content to a file first."
        )
    os.close(os.open(path, os.O_RDONLY))  # raises PermissionError now, not after an hour of counting other files
    return status.st_size, status.st_mtime_ns
