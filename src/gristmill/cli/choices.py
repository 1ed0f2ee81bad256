"""What options choose from: the names in the registries, so that what is registered is on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

from gristmill.arguments import TIE_BREAKS
from gristmill.corpus.options import DOCUMENTS, INPUT_FORMATS, ON_ERROR
from gristmill.shards.end_of_text import POSITIONS
from gristmill.shards.layouts import LAYOUTS
from gristmill.tokenizer.formats import FORMATS

ProgressKind: TypeAlias = Literal["auto", "bar", "jsonl", "none"]

if TYPE_CHECKING:  # A type checker cannot know the names; tyro reads them.
    DocumentsMode: TypeAlias = str
    InputFormat: TypeAlias = str
    LayoutName: TypeAlias = str
    OnError: TypeAlias = str
    Position: TypeAlias = Literal["after", "before"]
    TieBreak: TypeAlias = str
    TokenizerFormat: TypeAlias = str
else:
    DocumentsMode = Literal[tuple(DOCUMENTS)]
    InputFormat = Literal[tuple(INPUT_FORMATS)]
    LayoutName = Literal[tuple(LAYOUTS)]
    OnError = Literal[tuple(ON_ERROR)]
    Position = Literal[tuple(POSITIONS)]
    TieBreak = Literal[tuple(TIE_BREAKS)]
    TokenizerFormat = Literal[tuple(FORMATS)]


def listed(names: Iterable[str]) -> str:
    """The names in a sentence.

    >>> listed(["npy", "parquet", "llmc"])
    'npy, parquet or llmc'
    """
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def braced(names: Iterable[str]) -> str:
    """The names as tyro shows a choice, for an option that may also be left out: without its {None,…}.

    >>> braced(["after", "before"])
    '{after,before}'
    """
    return f"{{{','.join(names)}}}"
