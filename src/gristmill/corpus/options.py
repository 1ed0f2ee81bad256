"""How files are read: the keyword arguments that counting, training and encoding share, checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from gristmill.arguments import MAX_NATIVE, check_choice, check_whole_number, nearest
from gristmill.corpus import batches
from gristmill.corpus.formats import READERS
from gristmill.errors import OptionError

INPUT_FORMATS = ("auto", *READERS)
DOCUMENTS = ("separator", "file", "line")
ON_ERROR = ("raise", "skip")


class ReadOptions(TypedDict, total=False):
    """What `count_words`, `train_tokenizer`, `extend_tokenizer` and `encode_corpus` take beside their own arguments.

    input_format: "auto" (by suffix), "text", "jsonl", "parquet" or "arrow".
    text_field: the JSON key, the column or the key of rows that holds the text. Default: "text".
    documents: what a document of a text file is: what lies between separators ("separator"), the whole ("file"), or
        a line ("line"). Counting takes "file", because special tokens are boundaries anyway; encoding "separator".
    separator: what ends a document of a text file, "<|endoftext|>" unless given; it belongs to no document.
    on_error: "raise", or "skip" to leave out inputs that are damaged. Each is then read twice: first to check it.
    max_document_bytes: how long a JSON line, a value of a column, or a stretch of text without a place to cut it may
        be; 64 MiB unless given. Memory is bounded by it: a few of the longest ones may be under way for each thread.
    """

    input_format: str
    text_field: str
    documents: str
    separator: str
    on_error: str
    max_document_bytes: int


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read files, every field checked."""

    input_format: str = "auto"
    text_field: str = "text"
    documents: str = "separator"
    separator: str = "<|endoftext|>"
    on_error: str = "raise"
    max_document_bytes: int = 64 << 20
    # The names of those that the caller gave: one that does not apply to the corpus is an error.
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @classmethod
    def checked(cls, options: Mapping[str, Any], **defaults: str) -> Reading:
        """The options, with other defaults for some; TypeError for one that there is not.

        >>> Reading.checked({"text_field": "body"}, documents="file").documents
        'file'
        """
        names = list(ReadOptions.__annotations__)
        for name in options:
            if name not in names:
                raise TypeError(
                    f"unexpected keyword argument {name!r}.{nearest(name, names)} "
                    f"Options for reading are {', '.join(names)}."
                )
        reading = cls(**{**defaults, **options}, given=frozenset(options))
        check_choice("input_format", reading.input_format, INPUT_FORMATS)
        check_choice("documents", reading.documents, DOCUMENTS)
        check_choice("on_error", reading.on_error, ON_ERROR)
        _check_text("text_field", reading.text_field)
        _check_text("separator", reading.separator)
        _check_limit(reading.max_document_bytes)
        return reading

    def options(self) -> dict[str, Any]:
        """The options by name."""
        return {name: getattr(self, name) for name in ReadOptions.__annotations__}

    @property
    def end_of_document(self) -> bytes | None:
        """What ends a document of a text file; None where the file does."""
        return {"separator": self.separator.encode(), "line": b"\n", "file": None}[self.documents]


# What the options are about that only some corpora have.
_ABOUT = {
    "input_format": "is about files",
    "text_field": "names a field of JSON lines, rows and tables",
    "documents": "is about text files",
    "separator": "is about text files",
    "on_error": "is about files",
    "max_document_bytes": "is about files",
}
# Values that ask for nothing, whatever the corpus is.
_HARMLESS = {"input_format": "auto", "on_error": "raise"}


def check_applies(reading: Reading, applicable: Collection[str], what: str) -> None:
    """Raise for an option that was given and does not apply to the corpus, which is `what`."""
    for name in ReadOptions.__annotations__:
        value = getattr(reading, name)
        if name not in reading.given or _HARMLESS.get(name) == value:
            continue
        if name not in applicable:
            raise OptionError(
                f"{name}={value!r} does not apply: it {_ABOUT[name]}, and the corpus is {what}. Leave it out."
            )
        if name == "separator" and reading.documents != "separator":
            raise OptionError(
                f"separator={value!r} does not apply to documents={reading.documents!r}. "
                f"Pass documents='separator' too, or leave it out."
            )


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise OptionError(f"{name}={value!r} is a {type(value).__name__}. Pass a str.")
    if not value:
        raise OptionError(f"{name}='' is empty. Pass at least one character.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{name}={value!r} holds a lone surrogate, which no file can.") from None


def _check_limit(value: Any) -> None:
    limit = check_whole_number("max_document_bytes", value)
    if limit < batches.BATCH_BYTES:
        raise OptionError(
            f"max_document_bytes={limit} is too small. Pass at least {batches.BATCH_BYTES} (2 MiB), "
            f"which is what is read at a time anyway."
        )
    if limit > MAX_NATIVE:
        raise OptionError(f"max_document_bytes={limit} is too large. Pass at most {MAX_NATIVE} (2**63 - 1).")
