"""Options shared by commands: how a corpus is read, and checks of the output before the work starts."""

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
    """Return a number with its noun.

    >>> plural(1, "thread"), plural(2000, "thread")
    ('1 thread', '2,000 threads')
    """
    return f"{number:,} {word}{'s' * (number != 1)}"


def format_size(num_bytes: float) -> str:
    """Return a human-readable size.

    >>> format_size(999), format_size(50_000_000), format_size(1_234_567_890)
    ('999 B', '50 MB', '1.23 GB')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.3g} {unit}" if num_bytes < 100 * scale else f"{num_bytes / scale:,.0f} {unit}"
    return f"{num_bytes:,.0f} B"


Output: TypeAlias = Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE")]
# Off by default, so there is no --no-overwrite.
Flag: TypeAlias = Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help_behavior_hint="")]


ProfileOut: TypeAlias = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="FILE",
        help="Record what each thread does and when, and write a trace for https://ui.perfetto.dev or "
        "chrome://tracing. An earlier trace is replaced.",
        help_behavior_hint="",
    ),
]
Threads: TypeAlias = Annotated[
    int | None, whole_number("--threads"), tyro.conf.arg(help_behavior_hint="(default: all cores)")
]
TokenizerDevice: TypeAlias = Annotated[
    str,
    tyro.conf.arg(
        metavar="auto|cpu|cuda|cuda:N",
        help="Device that counts and merges: auto (a GPU if there is one and the corpus is large enough), cpu, cuda "
        "(all GPUs) or cuda:0 (one of them). The result is identical.",
    ),
]
PatternChoice: TypeAlias = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="NAME|REGEX",
        help=f"Pattern that cuts text into pieces: {', '.join(NATIVE_PATTERNS)}, or a regular expression.",
        help_behavior_hint=f"(default: {DEFAULT_PATTERN}, or that of the .gmw file)",
    ),
]
NewSpecialTokens: TypeAlias = Annotated[
    tuple[str, ...] | None,
    several("[TOKEN …]"),
    tyro.conf.arg(help_behavior_hint=f"(default: {' '.join(DEFAULT_SPECIAL_TOKENS)}, or those of the .gmw file)"),
]
CorpusNames: TypeAlias = Annotated[
    tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS…", help_behavior_hint="")
]


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options for reading the files of a corpus, inherited by the commands that read one."""

    input_format: InputFormat = "auto"
    """Format of the files. auto: by suffix. Text and JSON Lines may be compressed (.gz, .zst)."""

    text_field: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: text)")] = None
    """JSON key or Parquet/Arrow column with the text."""

    documents: Annotated[
        DocumentsMode,
        tyro.conf.arg(help_behavior_hint="(default: file for training and count-words, otherwise separator)"),
    ] = None
    """Unit of a document in text files: text between separators, the whole file, or a line."""

    separator: Annotated[
        str | None,
        tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: <|endoftext|>, or the end-of-text token)"),
    ] = None
    """Text that ends a document in a text file."""

    on_error: OnError = "raise"
    """Action on a damaged input: stop with an error, or skip it and warn at the end."""

    max_document_bytes: Annotated[
        int | None, byte_size("--max-document-bytes"), tyro.conf.arg(help_behavior_hint="(default: 64MiB)")
    ] = None
    """Maximum length of a JSON line, or of a text with no place to cut. Limits memory use."""

    def read_options(self) -> ReadOptions:
        """Return the given options as keyword arguments; the others keep their defaults."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(ReadingOptions)}
        return cast("ReadOptions", {name: value for name, value in given.items() if value is not None})


def find_corpus(
    names: tuple[str, ...], options: ReadingOptions, *, output: Path, overwrite: bool
) -> FoundFiles | Words:
    """Return the files that `names` match, or the sum of the word counts if they are .gmw files.

    Raises an error if `output` cannot be written or is one of the inputs.
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
        raise UsageError(f"no corpus given. Pass at least one file or folder{before}.")
    are_words = [name.lower().endswith(".gmw") for name in names]
    if not any(are_words):
        return find_files(names, Reading.checked(options.read_options(), documents="file"))
    if not all(are_words):
        raise UsageError(
            f"{names[are_words.index(True)]} holds word counts, but {names[are_words.index(False)]} is text. "
            f"Count the text with 'gristmill count-words' first, or pass text files only."
        )
    _check_no_reading(options, names[0])
    return _add_words(names)


def _check_no_reading(options: ReadingOptions, name: str) -> None:
    for field in dataclasses.fields(ReadingOptions):
        if getattr(options, field.name) != field.default:
            flag = field.name.replace("_", "-")
            raise UsageError(f"--{flag} applies to text, but {name} holds word counts. Omit --{flag}.")


def _add_words(names: tuple[str, ...]) -> Words:
    from gristmill.count import Words

    words = Words.load(names[0])
    for name in names[1:]:
        words = words + Words.load(name)
    return words


def check_output(path: Path, *, overwrite: bool, inputs: Iterable[str] = ()) -> None:
    """Raise an error if the output cannot or must not be written, before hours of work are spent on it."""
    folder = path.parent
    if str(path) == "-":
        raise UsageError("--output - (stdout) is not supported. Pass a file name.")
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        if not folder.is_dir():
            raise FileNotFoundError(
                errno.ENOENT, "output folder does not exist. Create it first", str(folder)
            ) from None
    else:
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder. Pass a file name", str(path))
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            raise OSError(errno.EINVAL, "is a device or pipe, which cannot be replaced. Pass a file name", str(path))
        if not overwrite:
            raise FileExistsError(errno.EEXIST, "already exists. Pass --overwrite to replace it", str(path))
        for name in inputs:
            # A link that leads nowhere is no input, and is replaced.
            if os.path.exists(name) and os.path.exists(path) and os.path.samefile(name, path):  # noqa: PTH110, PTH121
                raise FileExistsError(
                    errno.EEXIST, "is also an input and would be overwritten. Pass another output", str(path)
                )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no permission to write to this folder", str(folder))
