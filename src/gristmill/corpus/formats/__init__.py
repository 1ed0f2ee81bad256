"""Input formats of the files of a corpus, one module each.

| module | reads |
|---|---|
| `text.py` | text files: documents between separators, one per line, or one per file |
| `jsonl.py` | JSON lines: one object per line with a text field; `json_faults.py` explains bad lines |
| `columns.py` | Parquet and Arrow: one column is the text |

A format is a function `(input, reading, *, cut, mark, end)` that yields batches from `mark` to `end`, a place from
`cuts.py`, or to the end of the input if `end` is None. To add a format, write a module with this function, and add a
line to `READERS` and a parameter to `tests/corpus/test_corpus_formats.py`. `input_format=` and `--input-format` then
accept its name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, NamedTuple

from gristmill.corpus.batches import Batch, Cut, Mark
from gristmill.corpus.documents import FIELD_OPTIONS
from gristmill.corpus.formats.columns import read_arrow, read_parquet
from gristmill.corpus.formats.jsonl import read_jsonl
from gristmill.corpus.formats.text import read_text
from gristmill.corpus.inputs import Input
from gristmill.corpus.packages import load_fsspec, load_pyarrow, load_zstd

if TYPE_CHECKING:
    from gristmill.corpus.options import Reading


class Reader(NamedTuple):
    """How to read a format."""

    read: Callable[..., Generator[Batch, None, None]]  # (input, reading, *, cut, mark, end)
    what: str  # for messages, such as "text files"
    options: frozenset[str]  # the `ReadOptions` that apply, in addition to those of all files
    suffixes: tuple[str, ...]
    asked_suffixes: tuple[str, ...] = ()  # suffixes that are used only if the caller asks for this format
    may_be_compressed: bool = True
    load_package: Callable[[], object] | None = None


FILE_OPTIONS = frozenset({"input_format", "on_error", "max_document_bytes"})

READERS: dict[str, Reader] = {
    "text": Reader(read_text, "text files", frozenset({"documents", "separator"}), (".txt", ".text")),
    "jsonl": Reader(read_jsonl, "JSON lines", FIELD_OPTIONS, (".jsonl", ".ndjson"), (".json",)),
    "parquet": Reader(
        read_parquet,
        "Parquet files",
        FIELD_OPTIONS,
        (".parquet",),
        (".pq",),
        may_be_compressed=False,
        load_package=load_pyarrow,
    ),
    "arrow": Reader(
        read_arrow,
        "Arrow files",
        FIELD_OPTIONS,
        (".arrow", ".arrows", ".feather"),
        (".ipc",),
        may_be_compressed=False,
        load_package=load_pyarrow,
    ),
}


def options_of(formats: Iterable[str]) -> frozenset[str]:
    """Return the `ReadOptions` that apply to files of at least one of these formats."""
    return FILE_OPTIONS.union(*(READERS[format].options for format in formats))


def describe(formats: Iterable[str]) -> str:
    """Return a description of files of these formats, for messages."""
    return " and ".join(READERS[format].what for format in sorted(formats))


def read_batches(
    input: Input,
    reading: Reading,
    *,
    cut: Cut,
    mark: Mark = Mark(),  # noqa: B008
    end: Mark | None = None,
) -> Generator[Batch, None, None]:
    """Yield the batches of an input from `mark` to `end`. They depend only on the input, the options, `mark` and `end`.

    end: a place where a document ends, or may be cut (`in_document`); None for the end of the input.
    """
    return READERS[input.format].read(input, reading, cut=cut, mark=mark, end=end)


def load_packages(input: Input) -> None:
    """Import the packages that reading `input` needs, so that a missing one is reported before the work begins."""
    if not input.is_local:
        load_fsspec()
    if input.compression == "zst":
        load_zstd()
    if load_package := READERS[input.format].load_package:
        load_package()
