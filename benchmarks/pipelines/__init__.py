"""The systems that `bench_pipeline.py` compares: one module each, all with the same small face.

A module named after its system imports that system when it is imported and has

    DISTRIBUTION              its name for pip
    THREADS                   how the number of threads is set
    SLOW                      True when a run takes so long that fewer are made
    SYNCS                     True when its files are on the disk, not only in the page cache, before it returns
    FORMS                     its ways from a text file to a token file, by name
    build(files, threads)     the tokenizer, ready to encode, from the files of `encoders/vocabularies.py`

Equal work: documents lie between separators (`<|endoftext|>`; one behind the last document may be missing), and in the
token file, uint16, the id of the separator follows each document. The clock starts with the path of the text and a
tokenizer that is ready; it stops when the token file is closed.

To add one: write the module, add its name to `SYSTEMS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from encoders.vocabularies import SPECIAL, SPECIALS, VocabularyFiles

SYSTEMS = ("gristmill", "gigatoken", "tokenizers", "tiktoken")
VOCABULARY = "gpt2"
END_OF_TEXT = SPECIALS[VOCABULARY][SPECIAL]


@dataclass(frozen=True)
class Task:
    """What every form gets: a text file, an empty folder for what it writes, and a number of threads or processes."""

    path: Path
    folder: Path
    num_threads: int

    @property
    def token_file(self) -> Path:
        """Where a form that writes one file of its own puts it."""
        return self.folder / "tokens.bin"


@dataclass(frozen=True)
class Form:
    """One way from text to tokens: `encode(tokenizer, task)` returns the token files, whose ids follow each other."""

    what: str
    encode: Callable[[Any, Task], list[Path]]


class Pipeline(Protocol):
    """The face of an adapter module."""

    DISTRIBUTION: str
    THREADS: str
    SLOW: bool
    SYNCS: bool
    FORMS: Mapping[str, Form]

    def build(self, files: VocabularyFiles, num_threads: int) -> Any:
        """Return the tokenizer."""


def documents(path: Path) -> list[str]:
    """Return the documents of a text file, for systems that take `str`.

    A separator ends a document, so nothing behind the last one is no document.
    """
    *closed, rest = path.read_bytes().decode().split(SPECIAL)
    return [*closed, rest] if rest else closed
