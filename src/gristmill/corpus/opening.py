"""Turn a `corpus` argument into files or documents, by the table in the docstring of `gristmill.corpus`."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any, Protocol, TypeAlias

import numpy as np

from gristmill.corpus.documents import DocumentStream, RowStream, TextStream
from gristmill.corpus.files import (
    could_be_path,
    find_files,
    is_punctuation,
    looks_like_path,
    looks_like_text,
    names_something,
    which_name_something,
)
from gristmill.corpus.formats import describe, options_of
from gristmill.corpus.given import Documents, Files, PathLike
from gristmill.corpus.inputs import FoundFiles
from gristmill.corpus.options import Reading, check_applies
from gristmill.corpus.tables import open_table
from gristmill.errors import CorpusError, EmptyCorpusError

__all__ = ["Corpus", "Source", "open_corpus"]


class ArrowTable(Protocol):
    """A table or column of any library that exports Arrow data: pyarrow, pandas, polars, duckdb and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the data as a capsule."""


Corpus: TypeAlias = (
    "PathLike | Iterable[PathLike] | Iterable[str] | Iterable[bytes] | Iterable[Mapping[str, Any]] | "
    "ArrowTable | Files | Documents | FoundFiles"
)
Source: TypeAlias = FoundFiles | DocumentStream

NUM_STRINGS_LOOKED_AT = 1_000


def open_corpus(corpus: Any, reading: Reading = Reading()) -> Source:  # noqa: B008
    """Return the files or documents of `corpus`, by the table in the docstring of `gristmill.corpus`."""
    source = _open(corpus, reading)
    if isinstance(source, FoundFiles):
        formats = {input.format for input in source.inputs}
        check_applies(reading, options_of(formats), describe(formats))
    else:
        check_applies(reading, source.options, source.what)
    return source


def _open(corpus: Any, reading: Reading) -> Source:
    if isinstance(corpus, FoundFiles):
        return corpus
    if isinstance(corpus, Files):
        return _find(corpus.names, reading)
    if isinstance(corpus, str | os.PathLike):
        _refuse_text(corpus)
        return _find([corpus], reading)
    items = corpus.items if isinstance(corpus, Documents) else corpus
    _refuse_token_ids(items)
    table = open_table(items, reading.text_field)
    if table is not None:
        return table
    _refuse_what_is_not_a_corpus(items)
    if items is corpus and isinstance(items, list | tuple) and _are_paths(items):
        return _find(items, reading)
    return _open_items(items, reading, may_be_paths=items is corpus)


def _find(names: Iterable[Any], reading: Reading) -> FoundFiles:
    files = find_files(list(names), reading)
    if not files.inputs:
        raise EmptyCorpusError("the list of files is empty. Pass at least one path, glob or folder.")
    return files


def _open_items(items: Iterable[Any], reading: Reading, *, may_be_paths: bool) -> Source:
    """Return the documents of an iterable. The first item decides whether they are texts, rows or paths."""
    rest = iter(items)
    first = list(islice(rest, 1))
    if may_be_paths and first and isinstance(first[0], os.PathLike):
        return _find(chain(first, rest), reading)
    if first and isinstance(first[0], Mapping):
        return RowStream(chain(first, rest), reading.text_field)
    return TextStream(chain(first, rest))


def _are_paths(items: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a list contains paths rather than texts. Raises if it is ambiguous."""
    strings = items[:NUM_STRINGS_LOOKED_AT]
    if any(isinstance(item, os.PathLike) for item in strings):
        return True
    if not strings or not all(isinstance(item, str) for item in strings):
        return False
    found = which_name_something(strings)
    if all(found):
        return True
    missing = strings[found.index(False)]
    # A list of words usually contains ".", which is also the name of a folder.
    named = [item for item, is_name in zip(strings, found, strict=True) if is_name and not is_punctuation(item)]
    if named:
        raise CorpusError(
            f"this list of strings may contain paths or texts: {_short(named[0])} names a file, "
            f"{_short(missing)} does not. Pass gm.Files(…) for paths, gm.Documents(…) for texts."
        )
    if all(could_be_path(item) for item in strings) and any(looks_like_path(item) for item in strings):
        raise FileNotFoundError(
            errno.ENOENT, "No such file. Pass gm.Files(…) for paths, gm.Documents(…) if these are texts", missing
        )
    return False


def _refuse_text(corpus: PathLike) -> None:
    """Raise for a bare str that looks like a text and names no file."""
    if not isinstance(corpus, str) or not corpus or names_something(corpus) is not False:
        return
    if looks_like_text(corpus):
        short = corpus if len(corpus) <= 80 else corpus[:80] + "…"
        raise FileNotFoundError(errno.ENOENT, "No such file; to pass one text, pass gm.Documents([text])", short)


def _refuse_token_ids(corpus: Any) -> None:
    """Raise for shards and arrays of numbers, because a later error would name only the first item."""
    kind = type(corpus)
    if all(hasattr(kind, name) for name in ("tokens", "document_ends", "tokenizer_fingerprint")):
        raise TypeError(
            f"corpus is {kind.__name__}, which hold token ids, not text. Pass the text that they were made from."
        )
    if isinstance(corpus, np.ndarray) and corpus.dtype.kind not in "OSTU":
        raise TypeError(
            f"corpus is an array of {corpus.dtype} (shape {corpus.shape}), which is not text. Pass paths or texts; for "
            f"token ids, pass the text that they were made from."
        )


def _refuse_what_is_not_a_corpus(corpus: Any) -> None:
    hint = ""
    if isinstance(corpus, bytes | bytearray | memoryview):
        hint = "Pass gm.Documents([data]) to use it as one document, or a str or pathlib.Path to name a file"
    elif isinstance(corpus, io.IOBase):
        end = "''" if isinstance(corpus, io.TextIOBase) else "b''"
        hint = f"Pass its path instead{_named(corpus)}, or iter(lambda: file.read(n), {end}) for its parts as documents"
    elif isinstance(corpus, Mapping):
        columns = ", such as data['text']," if any(isinstance(value, list | tuple) for value in corpus.values()) else ""
        hint = f"Pass the texts{columns} to use them as documents, or gm.Words.from_counts(…) to train from counts"
    elif isinstance(corpus, set | frozenset):
        hint = "A set has no order, so the result would differ between runs. Pass sorted(...)"
    elif not isinstance(corpus, Iterable):
        hint = "Pass a path, a list of paths, a glob, an iterable of str or bytes documents, or counted Words"
    if hint:
        raise TypeError(f"corpus is of type {type(corpus).__name__}, which is not supported. {hint}.")


def _named(file: io.IOBase) -> str:
    name = getattr(file, "name", None)
    return f" ({name!r})" if isinstance(name, str) else ""


def _short(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…")
