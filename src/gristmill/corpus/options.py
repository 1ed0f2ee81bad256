"""Read options: the keyword arguments about files that counting, training and encoding share, validated."""

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
    """How `count_words`, `train_tokenizer`, `extend_tokenizer` and `encode_corpus` read files.

    Attributes:
        input_format: "auto" (by suffix), "text", "jsonl", "parquet" or "arrow".
        text_field: JSON key, column, or key of a row that holds the text. Default: "text".
        documents: What a document of a text file is: the text between separators ("separator"), the whole file
            ("file"), or a line ("line"). Default: "file" for counting and training, because special tokens are
            boundaries anyway; "separator" for encoding.
        separator: Text that ends a document of a text file. It belongs to no document. Default: "<|endoftext|>".
        on_error: "raise", or "skip" to skip damaged inputs. With "skip", each input is read twice, first to check it.
        max_document_bytes: Maximum length of a JSON line, of a column value, or of a text with no place to cut.
            Default: 64 MiB. Limits memory use: each thread may hold a few documents of this length.
    """

    input_format: str
    text_field: str
    documents: str
    separator: str
    on_error: str
    max_document_bytes: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The read options, validated."""

    input_format: str = "auto"
    text_field: str = "text"
    documents: str = "separator"
    separator: str = "<|endoftext|>"
    on_error: str = "raise"
    max_document_bytes: int = 64 << 20
    # Names of the options that the caller passed: it is an error to pass one that does not apply to the corpus.
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @classmethod
    def checked(cls, options: Mapping[str, Any], **defaults: str) -> Reading:
        """Return the validated options. `defaults` replace default values. Raises TypeError for an unknown option.

        >>> Reading.checked({"text_field": "body"}, documents="file").documents
        'file'
        """
        names = list(ReadOptions.__annotations__)
        for name in options:
            if name not in names:
                raise TypeError(
                    f"unexpected keyword argument {name!r}.{nearest(name, names)} "
                    f"The read options are {', '.join(names)}."
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
        """Return the options by name."""
        return {name: getattr(self, name) for name in ReadOptions.__annotations__}

    @property
    def end_of_document(self) -> bytes | None:
        """Bytes that end a document of a text file. None: the end of the file."""
        return {"separator": self.separator.encode(), "line": b"\n", "file": None}[self.documents]


# Which corpora each option applies to.
_ABOUT = {
    "input_format": "is an option for files",
    "text_field": "names a field of JSON lines, rows and tables",
    "documents": "is an option for text files",
    "separator": "is an option for text files",
    "on_error": "is an option for files",
    "max_document_bytes": "is an option for files",
}
# Values that have no effect, whatever the corpus is.
_HARMLESS = {"input_format": "auto", "on_error": "raise"}


def check_applies(reading: Reading, applicable: Collection[str], what: str) -> None:
    """Raise for an option that was passed and does not apply to the corpus, described as `what`."""
    for name in ReadOptions.__annotations__:
        value = getattr(reading, name)
        if name not in reading.given or _HARMLESS.get(name) == value:
            continue
        if name not in applicable:
            raise OptionError(
                f"{name}={value!r} does not apply: it {_ABOUT[name]}, but the corpus is {what}. Leave it out."
            )
        if name == "separator" and reading.documents != "separator":
            raise OptionError(
                f"separator={value!r} does not apply to documents={reading.documents!r}. "
                f"Pass documents='separator' too, or leave it out."
            )


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise OptionError(f"{name}={value!r} is of type {type(value).__name__}. Pass a str.")
    if not value:
        raise OptionError(f"{name}='' is empty. Pass at least one character.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise OptionError(
            f"{name}={value!r} contains a lone surrogate, which cannot be encoded as UTF-8. Pass valid Unicode text."
        ) from None


def _check_limit(value: Any) -> None:
    limit = check_whole_number("max_document_bytes", value)
    if limit < batches.BATCH_BYTES:
        raise OptionError(
            f"max_document_bytes must be >= {batches.BATCH_BYTES} (2 MiB, the amount read at a time), got {limit}."
        )
    if limit > MAX_NATIVE:
        raise OptionError(f"max_document_bytes must be <= {MAX_NATIVE} (2**63 - 1), got {limit}.")
