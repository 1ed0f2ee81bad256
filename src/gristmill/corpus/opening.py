"""What a `corpus` argument means: files or documents. The table is in the docstring of `gristmill.corpus`."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any, TypeAlias

from gristmill.corpus.documents import Documents
from gristmill.corpus.files import could_be_path, find_files, looks_like_path, names_something
from gristmill.corpus.inputs import Files
from gristmill.corpus.options import Reading
from gristmill.errors import CorpusError

__all__ = ["Corpus", "open_corpus"]

PathLike: TypeAlias = str | os.PathLike[str]
Corpus: TypeAlias = "PathLike | Iterable[PathLike] | Iterable[str] | Iterable[bytes] | Files"

NUM_STRINGS_LOOKED_AT = 1_000


def open_corpus(corpus: PathLike | Iterable[Any] | Files, reading: Reading = Reading()) -> Files | Documents:  # noqa: B008
    """The files or the documents that `corpus` means; see the table in the docstring of `gristmill.corpus`."""
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
