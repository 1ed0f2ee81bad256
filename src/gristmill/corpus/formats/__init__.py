"""Input formats: what the files of a corpus may be, one module each.

| module | reads |
|---|---|
| `text.py` | text files: documents between separators, one per line, or one per file |
| `jsonl.py` | JSON lines: one object per line, of which one field is the text; `json_faults.py` explains bad lines |
| `columns.py` | Parquet and Arrow: one column is the text |

A format is a function `(input, reading, *, cut, mark)` that yields batches from `mark` on. To add one, write a module
with that function, add its line to `READERS` and a parameter to `tests/corpus/test_corpus_formats.py`; `input_format=`
and `--input-format` then know its name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from gristmill.corpus.batches import Batch, Cut, Mark
from gristmill.corpus.formats.columns import read_arrow, read_parquet
from gristmill.corpus.formats.jsonl import read_jsonl
from gristmill.corpus.formats.text import read_text
from gristmill.corpus.inputs import Input
from gristmill.corpus.packages import load_fsspec, load_pyarrow, load_zstd

if TYPE_CHECKING:
    from gristmill.corpus.options import Reading


class Reader(NamedTuple):
    """How a format is read."""

    read: Callable[..., Generator[Batch, None, None]]  # (input, reading, *, cut, mark)
    suffixes: tuple[str, ...]
    asked_suffixes: tuple[str, ...] = ()  # that mean this format only where it is asked for
    may_be_compressed: bool = True
    load_package: Callable[[], object] | None = None


READERS: dict[str, Reader] = {
    "text": Reader(read_text, (".txt", ".text")),
    "jsonl": Reader(read_jsonl, (".jsonl", ".ndjson"), (".json",)),
    "parquet": Reader(read_parquet, (".parquet",), (".pq",), may_be_compressed=False, load_package=load_pyarrow),
    "arrow": Reader(
        read_arrow, (".arrow", ".arrows", ".feather"), (".ipc",), may_be_compressed=False, load_package=load_pyarrow
    ),
}


def read_batches(input: Input, reading: Reading, *, cut: Cut, mark: Mark = Mark()) -> Generator[Batch, None, None]:  # noqa: B008
    """The batches of an input from `mark` on. They depend on the input and the options, on nothing else."""
    return READERS[input.format].read(input, reading, cut=cut, mark=mark)


def load_packages(input: Input) -> None:
    """Import what reading `input` needs, so that a package that is missing is known before the work begins."""
    if not input.is_local:
        load_fsspec()
    if input.compression == "zst":
        load_zstd()
    if load_package := READERS[input.format].load_package:
        load_package()
