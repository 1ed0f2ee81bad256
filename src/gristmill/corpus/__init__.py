"""corpus: what a `corpus` argument may be, and the documents behind it.

| you pass | it means |
|---|---|
| `"corpus.txt"`, `Path("corpus.txt")` | that file |
| `"data/**/*.txt"` | the files that match, sorted by name |
| `"data"`, `Path("data")` | the files below that folder with a suffix that is known, hidden ones left out, sorted |
| `"s3://bucket/data/*.jsonl.zst"` | a URL of any file system that `fsspec` has a plug-in for; globs and folders too |
| `[Path("a.txt"), Path("b.txt")]` | these files: a `Path` is always a path |
| `["a.txt", "parts/*.txt"]` | these files, because every string of the list names one (or matches one, as a glob) |
| `["Once upon a time …", "The end."]` | two documents, because no string of the list names a file |
| `iter(texts)`, a generator, any other iterable | documents, `str` or `bytes`: never looked up on the disk |
| `[text]` | one document; a bare `str` is a path |

A list of strings of which some name files and some do not is an error, and so is one that looks like paths to files
that are not there: neither is guessed. `Path` objects and `iter(...)` say it without any doubt. Only the first 1,000
strings of a list are looked at, so that a long list of documents costs nothing.

| suffix | format | a document is |
|---|---|---|
| `.txt`, `.text`, any other | text | what lies between separators, a line, or the whole file: `documents=` |
| `.jsonl`, `.ndjson` | JSON, one object a line | the string in field "text": `text_field=` |
| `.parquet` | Parquet | a value of column "text": `text_field=` |
| `.arrow`, `.arrows`, `.feather` | Arrow, file or stream | a value of column "text": `text_field=` |

Text and JSON lines may also be `.gz` or `.zst`. `input_format=` says what a file is whose suffix does not;
`ReadOptions` has all options. Texts are taken byte for byte, nothing decoded, stripped or normalised (CRLF, NUL, a BOM
and invalid UTF-8 stay). A file named twice is read twice. docs/corpus.md says more.

`open_corpus` gives `Files` or `Documents`, and `read_files` the batches of files: whatever the format, documents as
stretches of a buffer. Reading order: reading, inputs, files; sources, streams, windows; text, jsonl, columns; readers,
read_ahead, gather.

Adding an input format is one new module here, one line in `readers.py`, one name in `reading.py`, one test parameter.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from gristmill.corpus.documents import Documents
from gristmill.corpus.files import could_be_path, find_files, looks_like_path, names_something
from gristmill.corpus.inputs import Files, Input
from gristmill.corpus.read_ahead import read_files
from gristmill.corpus.reading import Reading, ReadOptions
from gristmill.errors import CorpusError

if TYPE_CHECKING:
    from gristmill.words import Words

__all__ = [
    "Corpus",
    "Documents",
    "Files",
    "Input",
    "ReadOptions",
    "Reading",
    "find_files",
    "open_corpus",
    "read_files",
]

PathLike: TypeAlias = str | os.PathLike[str]
Corpus: TypeAlias = "PathLike | Iterable[PathLike] | Iterable[str] | Iterable[bytes] | Files | Words"

NUM_STRINGS_LOOKED_AT = 1_000


def open_corpus(corpus: PathLike | Iterable[Any] | Files, reading: Reading = Reading()) -> Files | Documents:  # noqa: B008
    """The files or the documents that `corpus` means; see the table at the head of this module."""
    if isinstance(corpus, Files):
        return corpus
    _refuse_what_is_not_a_corpus(corpus)
    if isinstance(corpus, str | os.PathLike):
        return find_files([corpus], reading)
    if isinstance(corpus, list | tuple):
        return find_files(corpus, reading) if _are_paths(corpus) else Documents(corpus)
    items = iter(corpus)
    first = list(islice(items, 1))
    if first and isinstance(first[0], os.PathLike):
        return find_files(first + list(items), reading)
    return Documents(chain(first, items))


def _are_paths(items: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a list holds paths rather than texts; an error where that cannot be told."""
    strings = items[:NUM_STRINGS_LOOKED_AT]
    if any(isinstance(item, os.PathLike) for item in strings):
        return True
    if not strings or not all(isinstance(item, str) for item in strings):
        return False
    found = [names_something(item) for item in strings]
    if all(found):
        return True
    missing = strings[found.index(False)]
    if any(found):
        raise CorpusError(
            f"cannot tell whether this list of strings holds paths or texts: {_short(strings[found.index(True)])} "
            f"names a file, {_short(missing)} does not. Pass pathlib.Path objects for paths, iter(texts) for texts."
        )
    if all(could_be_path(item) for item in strings) and any(looks_like_path(item) for item in strings):
        raise FileNotFoundError(
            errno.ENOENT, "No such file (if these are texts and not paths, pass iter(texts))", missing
        )
    return False


def _refuse_what_is_not_a_corpus(corpus: Any) -> None:
    hint = ""
    if isinstance(corpus, bytes | bytearray | memoryview):
        hint = "Pass [data] to train from one document, or a str or pathlib.Path to name a file"
    elif isinstance(corpus, io.IOBase):
        hint = f"Pass its path instead{_named(corpus)}, or iter(lambda: file.read(n), '') for its parts as documents"
    elif isinstance(corpus, Mapping):
        hint = "Pass gristmill.Words.from_counts(mapping) to train from counts"
    elif isinstance(corpus, set | frozenset):
        hint = "A set has no order, and the result would not be the same every time: pass sorted(...)"
    elif not isinstance(corpus, str | os.PathLike) and not isinstance(corpus, Iterable):
        hint = "Pass a path, a list of paths, a glob, an iterable of str or bytes documents, or counted Words"
    if hint:
        raise TypeError(f"a {type(corpus).__name__} is not a corpus. {hint}.")


def _named(file: io.IOBase) -> str:
    name = getattr(file, "name", None)
    return f" ({name!r})" if isinstance(name, str) else ""


def _short(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…")
