"""The systems that `gristmill bench pipeline` compares: one module each, all with the same interface.

A module named after its system imports that system when it is imported and has

    DISTRIBUTION              its name for pip
    THREADS                   how the number of threads is set
    SLOW                      True if a run is so slow that fewer are made
    SYNCS                     True if its files are on disk, not only in the page cache, when it returns
    FORMS                     its functions from a text file to a token file, by name
    build(files, threads)     the tokenizer, ready to encode, from the files of `encoders/vocabularies.py`

Equal work: documents are separated by `<|endoftext|>` (optional after the last document), and in the uint16 token file
the id of the separator follows each document. The clock starts with the path of the text and a
tokenizer that is ready; it stops when the token file is closed.

To add one: write the module, add its name to `SYSTEMS`. A module outside this package works as well: pass its dotted
name to `gristmill bench pipeline --systems`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gristmill.bench.encoders.vocabularies import SPECIAL, VocabularyFiles

SYSTEMS = ("gristmill", "gigatoken", "tokenizers", "tiktoken")


@dataclass(frozen=True)
class Task:
    """The input of every form: a text file, an empty output folder, and a number of threads or processes."""

    path: Path
    folder: Path
    num_threads: int
    end_of_text: int  # id of the separator

    @property
    def token_file(self) -> Path:
        """The path for forms that write one file."""
        return self.folder / "tokens.bin"


@dataclass(frozen=True)
class Form:
    """One function from text to tokens: `encode(tokenizer, task)` returns the token files, in order."""

    what: str
    encode: Callable[[Any, Task], list[Path]]


class Pipeline(Protocol):
    """The interface of an adapter module."""

    DISTRIBUTION: str
    THREADS: str
    SLOW: bool
    SYNCS: bool
    FORMS: Mapping[str, Form]

    def build(self, files: VocabularyFiles, num_threads: int) -> Any:
        """Return the tokenizer."""


def documents(path: Path) -> list[str]:
    """Return the documents of a text file, for systems that take `str`.

    A separator ends a document, so an empty rest after the last one is not a document.
    """
    *closed, rest = path.read_bytes().decode().split(SPECIAL)
    return [*closed, rest] if rest else closed
