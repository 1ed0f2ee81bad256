"""What commands share: how a corpus is read, sizes such as 512MB, and outputs that are checked before the work."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import tyro

from gristmill.cli.choices import DocumentsMode, InputFormat, OnError, braced
from gristmill.corpus.options import DOCUMENTS

if TYPE_CHECKING:
    from gristmill.corpus import ReadOptions


class UsageError(ValueError):
    """Options that do not go together; exit code 2."""


_SIZE = re.compile(r"([0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?) ?([kmgt]?)(i?)b?", re.IGNORECASE | re.ASCII)
_EXPONENTS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def plural(number: int, word: str) -> str:
    """Return how many there are of something.

    >>> plural(1, "thread"), plural(2000, "thread")
    ('1 thread', '2,000 threads')
    """
    return f"{number:,} {word}{'s' * (number != 1)}"


def parse_count(text: str, option: str) -> int:
    """Return a number of things.

    >>> [parse_count(text, "--shard-tokens") for text in ("512", "100M", "1.5k")]
    [512, 100000000, 1500]
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[3] or text.strip()[-1:] in "bB":
        raise UsageError(f"{option} {text!r} is not a number. Write digits, or a form such as 100M or 1.5G.")
    return parse_size(text, option)


def parse_size(text: str, option: str) -> int:
    """Return a number of bytes.

    >>> [parse_size(text, "--size") for text in ("512", "50MB", "2GiB", "1.5k")]
    [512, 50000000, 2147483648, 1500]
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[3] and not match[2]):
        raise UsageError(
            f"{option} {text!r} is not a size. Write bytes, or a form such as 512MB (10^6) or 2GiB (2^30)."
        )
    scale: int = (1024 if match[3] else 1000) ** _EXPONENTS[match[2].lower()]
    number = match[1].replace("_", "")
    return round(float(number) * scale) if "." in number else int(number) * scale


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
# Off unless given, which goes without saying: there is no --no-overwrite.
Flag: TypeAlias = Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help_behavior_hint="")]


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

    documents: Annotated[DocumentsMode | None, tyro.conf.arg(metavar=braced(DOCUMENTS), help_behavior_hint="")] = None
    """What a document of a text file is: between separators, the whole file, or a line."""

    separator: Annotated[
        str | None,
        tyro.conf.arg(metavar="TEXT", help_behavior_hint="(default: <|endoftext|>, or the end-of-text token)"),
    ] = None
    """What ends a document of a text file."""

    on_error: OnError = "raise"
    """Stop at an input that is damaged, or leave it out and say so at the end."""

    max_document_bytes: Annotated[str | None, tyro.conf.arg(metavar="SIZE", help_behavior_hint="(default: 64MiB)")] = (
        None
    )
    """How long a JSON line, or a stretch of text without a place to cut it, may be: it bounds memory."""

    def read_options(self) -> ReadOptions:
        """The options, as functions take them; what was not given is left to their defaults."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(ReadingOptions)}
        if self.max_document_bytes is not None:
            given["max_document_bytes"] = parse_size(self.max_document_bytes, "--max-document-bytes")
        return cast("ReadOptions", {name: value for name, value in given.items() if value is not None})


def check_output(path: Path, *, overwrite: bool, inputs: Iterable[str] = ()) -> None:
    """Refuse an output that could not be written, or must not be, before hours of work go into it."""
    folder = path.parent
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
