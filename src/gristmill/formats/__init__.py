"""formats: files that hold a tokenizer.

A format is a module with `dump(parts) -> bytes` and `parse(data) -> parts`. Adding one is the module, a line in
`FORMATS` and a test parameter.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import ModuleType

from gristmill.errors import GristmillError, OptionError, TokenizerFormatError
from gristmill.formats import gristmill_json
from gristmill.formats.parts import TokenizerParts
from gristmill.publish import publish

__all__ = ["FORMATS", "TokenizerParts", "read_tokenizer", "write_tokenizer"]

FORMATS: dict[str, ModuleType] = {"gristmill": gristmill_json}

MAX_FILE_BYTES = 64 << 20  # room for some three million merges


def read_tokenizer(path: str | os.PathLike[str], format: str = "auto") -> TokenizerParts:
    """What the file at `path` holds; `TokenizerFormatError`, naming the file, when it is not a sound tokenizer."""
    parse = FORMATS["gristmill" if format == "auto" else _checked(format)].parse
    name = os.fspath(path)
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a pipe without a writer would be waited for
        raise TokenizerFormatError(f"{name}: is a pipe or device; a tokenizer is a file.")
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not 0 < size <= MAX_FILE_BYTES:
            raise TokenizerFormatError(f"{name}: has {size:,} bytes; a tokenizer has 1 to {MAX_FILE_BYTES:,}.")
        data = file.read(size)
    try:
        parts: TokenizerParts = parse(data)
    except (GristmillError, ValueError, TypeError, RecursionError) as error:
        raise TokenizerFormatError(f"{name}: {error or type(error).__name__}") from error
    return parts


def write_tokenizer(
    parts: TokenizerParts, path: str | os.PathLike[str], *, format: str = "gristmill", overwrite: bool = True
) -> None:
    """Write `parts` to `path`, whole or not at all."""
    data = FORMATS[_checked(format)].dump(parts)
    if len(data) > MAX_FILE_BYTES:
        raise TokenizerFormatError(
            f"{os.fspath(path)}: {len(parts.merges):,} merges need {len(data):,} bytes, and a tokenizer file has at "
            f"most {MAX_FILE_BYTES:,}. Save tokenizer.truncated(...)."
        )
    with publish(path, overwrite=overwrite) as file:
        file.write(data)


def _checked(format: str) -> str:
    if format not in FORMATS:
        raise OptionError(f"format={format!r} is not known. Pass one of {', '.join(map(repr, ['auto', *FORMATS]))}.")
    return format
