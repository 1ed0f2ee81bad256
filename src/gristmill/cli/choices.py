"""What options choose from: the names in the registries, so that what is registered is on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

from gristmill.arguments import TIE_BREAKS
from gristmill.cli.values import one_of
from gristmill.corpus.options import DOCUMENTS, INPUT_FORMATS, ON_ERROR
from gristmill.shards.end_of_text import POSITIONS
from gristmill.shards.layouts import LAYOUTS
from gristmill.tokenizer.formats import FORMATS

DocumentsMode: TypeAlias = Annotated[str | None, one_of("--documents", DOCUMENTS)]
InputFormat: TypeAlias = Annotated[str, one_of("--input-format", INPUT_FORMATS)]
LayoutName: TypeAlias = Annotated[str, one_of("--format", LAYOUTS)]
OnError: TypeAlias = Annotated[str, one_of("--on-error", ON_ERROR)]
Position: TypeAlias = Annotated[Literal["after", "before"] | None, one_of("--end-of-text-position", POSITIONS)]
ProgressKind: TypeAlias = Annotated[
    Literal["auto", "bar", "jsonl", "none"], one_of("--progress", ["auto", "bar", "jsonl", "none"])
]
TieBreak: TypeAlias = Annotated[str, one_of("--tie-break", TIE_BREAKS)]
TokenIdType: TypeAlias = Annotated[Literal["uint16", "uint32"] | None, one_of("--dtype", ["uint16", "uint32"])]
TokenizerFormat: TypeAlias = Annotated[str, one_of("--format", FORMATS)]


def listed(names: Iterable[str]) -> str:
    """The names in a sentence.

    >>> listed(["npy", "parquet", "llmc"])
    'npy, parquet or llmc'
    """
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
