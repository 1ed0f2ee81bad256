"""Choices of options, taken from the registries, so every registered name is available on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

from gristmill.arguments import TIE_BREAKS
from gristmill.cli.values import one_of
from gristmill.corpus.options import DOCUMENTS, INPUT_FORMATS, ON_ERROR
from gristmill.lm.use.exports import FORMATS as MODEL_FORMATS
from gristmill.lm.use.exports import all_dtypes
from gristmill.shards.end_of_text import POSITIONS
from gristmill.shards.layouts import LAYOUTS
from gristmill.tokenizer.formats import FORMATS

DocumentsMode: TypeAlias = Annotated[str | None, one_of(DOCUMENTS)]
InputFormat: TypeAlias = Annotated[str, one_of(INPUT_FORMATS)]
LayoutName: TypeAlias = Annotated[str, one_of(LAYOUTS)]
ModelFormat: TypeAlias = Annotated[str, one_of(MODEL_FORMATS)]
ModelDtype: TypeAlias = Annotated[str, one_of(all_dtypes())]
OnError: TypeAlias = Annotated[str, one_of(ON_ERROR)]
Position: TypeAlias = Annotated[Literal["after", "before"] | None, one_of(POSITIONS)]
ProgressKind: TypeAlias = Annotated[Literal["auto", "bar", "jsonl", "none"], one_of(["auto", "bar", "jsonl", "none"])]
TieBreak: TypeAlias = Annotated[str, one_of(TIE_BREAKS)]
TokenIdType: TypeAlias = Annotated[Literal["uint16", "uint32"] | None, one_of(["uint16", "uint32"])]
TokenizerFormat: TypeAlias = Annotated[str, one_of(FORMATS)]


def listed(names: Iterable[str]) -> str:
    """Return the names as a list in a sentence.

    >>> listed(["npy", "parquet", "llmc"])
    'npy, parquet or llmc'
    """
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
