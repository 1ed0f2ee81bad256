"""What commands share: how a corpus and a tokenizer are read, and outputs that are checked before the work."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import tyro

from gristmill.arguments import DEFAULT_SPECIAL_TOKENS
from gristmill.cli.choices import DocumentsMode, InputFormat, OnError
from gristmill.cli.values import UsageError as UsageError
from gristmill.cli.values import byte_size, several, whole_number
from gristmill.pretokenize import NATIVE_PATTERNS
from gristmill.pretokenize.patterns import DEFAULT_PATTERN

if TYPE_CHECKING:
    from gristmill.corpus import FoundFiles, ReadOptions
    from gristmill.count import Words


def plural(number: int, word: str) -> str:
    """Return how many there are of something.

    >>> plural(1, "thread"), plural(2000, "thread")
    ('1 thread', '2,000 threads')
    """
    return f"{number:,} {word}{'s' * (number != 1)}"


def format_size(num_bytes: float) -> str:
    """Return a size for people.

    >>> format_size(999), format_size(50_000_000), format_size(1_234_567_890)
    ('999 B', '50 MB', '1.23 GB')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.3g} {unit}" if num_bytes < 100 * scale else f"{num_bytes / scale:,.0f} {unit}"
    return f"{num_bytes:,.0f} B"


Output: TypeAlias = Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE")]
# Off unless given, so there is no --no-overwrite.
Flag: TypeAlias = Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help_behavior_hint="")]


Threads: TypeAlias = Annotated[
    int | None, whole_number("--threads"), tyro.conf.arg(help_behavior_hint="(default: all cores)")
]
PatternChoice: TypeAlias = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="NAME|REGEX",
        help=f"What cuts the text into pieces: {', '.join(NATIVE_PATTERNS)}, or a regular expression.",
        help_behavior_hint=f"(default: {DEFAULT_PATTERN}, or that of counted words)",
    ),
]
NewSpecialTokens: TypeAlias = Annotated[
    tuple[str, ...] | None,
    several("[TOKEN …]"),
    tyro.conf.arg(help_behavior_hint=f"(default: {' '.join(DEFAULT_SPECIAL_TOKENS)}, or those of counted words)"),
]
CorpusNames: TypeAlias = Annotated[
    tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS…", help_behavior_hint="")
]


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How the files of a corpus are read; commands that read one inherit these options."""

    input_format: InputFormat = "auto"
    """What the files are; auto: by suffix. Text and JSON lines may also be .gz or .zst."""

    text_field: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: text)")] = None
    """The JSON key or the column that holds the text."""

    documents: Annotated[DocumentsMode, tyro.conf.arg(help_behavior_hint="")] = None
    """What a document of a text file is: between separators, the whole file, or a line."""

    separator: Annotated[
        str | None,
        tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: <|endoftext|>, or the end-of-text token)"),
    ] = None
    """What ends a document of a text file."""

    on_error: OnError = "raise"
    """Stop at a damaged input, or leave it out and warn at the end."""

    max_document_bytes: Annotated[
        int | None, byte_size("--max-document-bytes"), tyro.conf.arg(help_behavior_hint="(default: 64MiB)")
    ] = None
    """How long a JSON line, or a stretch of text without a place to cut it, may be: it bounds memory."""

    def read_options(self) -> ReadOptions:
        """The options, as functions take them; what was not given is left to their defaults."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(ReadingOptions)}
        return cast("ReadOptions", {name: value for name, value in given.items() if value is not None})


def find_corpus(
    names: tuple[str, ...], options: ReadingOptions, *, output: Path, overwrite: bool
) -> FoundFiles | Words:
    """The files to count that `names` mean, or the words that `gristmill count-words` counted (.gmw) added up.

    Also refuses an `output` that could not be written, or that is one of the inputs.
    """
    from gristmill.count import Words

    corpus = _files_or_words(names, options)
    inputs = names if isinstance(corpus, Words) else corpus.paths
    check_output(output, overwrite=overwrite, inputs=inputs)
    return corpus


def _files_or_words(names: tuple[str, ...], options: ReadingOptions) -> FoundFiles | Words:
    from gristmill.corpus import Reading, find_files

    if not names:
        before = ", before --special-tokens" if hasattr(options, "special_tokens") else ""
        raise UsageError(f"no corpus given. Name at least one file or folder{before}.")
    are_words = [name.lower().endswith(".gmw") for name in names]
    if not any(are_words):
        return find_files(names, Reading.checked(options.read_options(), documents="file"))
    if not all(are_words):
        raise UsageError(
            f"{names[are_words.index(True)]} holds counted words, and {names[are_words.index(False)]} is text. "
            f"Count the text with 'gristmill count-words' first, or name text alone."
        )
    _check_no_reading(options, names[0])
    return _add_words(names)


def _check_no_reading(options: ReadingOptions, name: str) -> None:
    for field in dataclasses.fields(ReadingOptions):
        if getattr(options, field.name) != field.default:
            flag = field.name.replace("_", "-")
            raise UsageError(f"--{flag} says how text is read, and {name} holds counted words. Leave it out.")


def _add_words(names: tuple[str, ...]) -> Words:
    from gristmill.count import Words

    words = Words.load(names[0])
    for name in names[1:]:
        words = words + Words.load(name)
    return words


def check_output(path: Path, *, overwrite: bool, inputs: Iterable[str] = ()) -> None:
    """Refuse an output that could not be written, or must not be, before hours of work go into it."""
    folder = path.parent
    if str(path) == "-":
        raise UsageError("--output - is not stdout here. Pass the name of a file.")
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder to write to", str(folder)) from None
    else:
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder. Pass the name of a file", str(path))
        if not overwrite:
            raise FileExistsError(errno.EEXIST, "is already there. Pass --overwrite to replace it", str(path))
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            raise OSError(errno.EINVAL, "is a device or pipe. Only a file can be replaced", str(path))
        for name in inputs:
            if os.path.exists(name) and os.path.samefile(name, path):  # noqa: PTH110, PTH121
                raise FileExistsError(errno.EEXIST, "is also an input, and would be replaced", str(path))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no permission to write in this folder", str(folder))
