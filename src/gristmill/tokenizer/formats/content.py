"""Read tokenizer files with a size limit, parse JSON with a limit of items, and split other files with one of lines."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

from gristmill.errors import OptionError, TokenizerFormatError
from gristmill.small_files import count_items, read_small_file
from gristmill.small_files import parse_json as parse_any_json

MAX_FILE_BYTES = 128 << 20  # published vocabularies have up to 35 MB
MAX_JSON_ITEMS = 10_000_000
MAX_LINES = 4_000_000  # a vocabulary of so many merges has more JSON items than allowed

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")
_FILE_SUFFIXES = (".json", ".tiktoken", ".model", ".gguf", ".txt", ".bpe", ".gz")


def checked_path(path: Any, argument: str) -> Path:
    """Return the path passed as `argument`, which need not exist. Raises for another type or an empty name."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"{argument} is of type {type(path).__name__}, not a path. Pass the path of a tokenizer. For an object of "
            f"another library, call Tokenizer.from_huggingface() or Tokenizer.from_tiktoken()."
        )
    if not os.fspath(path):
        raise OptionError(f"{argument}='' is empty. Pass the path of a tokenizer; '.' is the current folder.")
    return Path(path)


def may_be_hub_name(name: str) -> bool:
    """Whether `name` has the form of a name on the Hugging Face Hub: `name` or `owner/name`."""
    return _HUB_NAME.fullmatch(name) is not None


def check_there(path: str | os.PathLike[str]) -> None:
    """Raise the error of the operating system if `path` does not exist, with a hint if it may be a name on the Hub."""
    try:
        Path(path).stat()
    except FileNotFoundError:
        name = os.fspath(path)
        if not may_be_hub_name(name) or name.endswith(_FILE_SUFFIXES):
            raise
        hint = f"In Python, Tokenizer.from_pretrained({name!r}) downloads it from the Hugging Face Hub"
        raise FileNotFoundError(errno.ENOENT, f"No such file or folder. {hint}", name) from None


def read_content(path: Path, first_bytes: int | None = None) -> bytes:
    """Return the bytes of the file, or only the first ones. Raises TokenizerFormatError if it cannot be a tokenizer."""
    data = read_small_file(
        path, what="a tokenizer", max_bytes=MAX_FILE_BYTES, error=TokenizerFormatError, first_bytes=first_bytes
    )
    if not data:
        raise TokenizerFormatError(f"{path}: is empty; a tokenizer file has 1 to {MAX_FILE_BYTES:,} bytes.")
    return data


def check_content(data: bytes) -> None:
    """Raise if `read_content` or `parse_json` could not read `data`, before it is written."""
    num_items, num_lines = count_items(data), data.count(b"\n")
    if len(data) > MAX_FILE_BYTES or num_items > MAX_JSON_ITEMS or num_lines > MAX_LINES:
        raise TokenizerFormatError(
            f"the vocabulary needs a file of {len(data):,} bytes, {num_items:,} items and {num_lines:,} lines; at most "
            f"{MAX_FILE_BYTES:,} bytes, {MAX_JSON_ITEMS:,} items and {MAX_LINES:,} lines are allowed. Export "
            f"tokenizer.truncated(...)."
        )


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of a file. Only line feeds end a line. Raises TokenizerFormatError for too many lines."""
    num_lines = data.count(b"\n")
    if num_lines > MAX_LINES:  # each would take ten times the memory that it takes in the file
        raise TokenizerFormatError(f"has {num_lines:,} lines; at most {MAX_LINES:,} are allowed.")
    return data.split(b"\n")


def parse_json(data: bytes) -> Any:
    """Return the value of the JSON text of a tokenizer. Repeated keys are an error."""
    return parse_any_json(data, error=TokenizerFormatError, max_items=MAX_JSON_ITEMS, unique_keys=True)
