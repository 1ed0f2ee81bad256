"""Small files that a user names, or that lie in a folder a user names: read whole, within a limit, and parsed as JSON.

Manifests, configs, records and tokenizers may come from anybody, and their paths may lead anywhere. A pipe without a
writer blocks its reader, /dev/zero never ends, a file may be larger than memory, and JSON may be nested deeper than
the parser's stack. Every such case is an error here, raised before memory is used up.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from gristmill.errors import GristmillError

__all__ = ["parse_json", "read_json_lines", "read_small_file"]

# A pipe is opened without waiting for its writer, and a terminal does not become ours.
_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
    _FLAGS |= getattr(os, _name, 0)
_BLOCK_BYTES = 1 << 16


def read_small_file(
    path: str | os.PathLike[str],
    *,
    what: str,
    max_bytes: int,
    error: type[GristmillError],
    first_bytes: int | None = None,
) -> bytes:
    """The content of a regular file; with `first_bytes`, only its beginning.

    A pipe, a device, more than `max_bytes` and a path that can be no file's are an `error` that says what the file is
    and what it should be: `what`, such as "a manifest". A folder is IsADirectoryError.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except ValueError:  # a NUL byte, or a character that file names on this system cannot have
        raise error(f"{os.fspath(path)!r}: no file can have this name.") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, f"Is a folder; {what} is a file", os.fspath(path))
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{os.fspath(path)}: is a pipe or device; {what} is a regular file.")
        if status.st_size > max_bytes:
            raise _too_large(path, f"{status.st_size:,} bytes", what, max_bytes, error)
        wanted = max_bytes + 1 if first_bytes is None else min(first_bytes, max_bytes)
        data = _read(descriptor, wanted, status.st_size)
    except OSError as failure:
        if failure.filename is None:
            failure.filename = os.fspath(path)
        raise
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        raise _too_large(path, f"more than {max_bytes:,} bytes", what, max_bytes, error)
    return data


def _read(descriptor: int, wanted: int, size: int) -> bytes:
    """Up to `wanted` bytes. The size is only a hint: a file may grow meanwhile, and those of /proc have none."""
    blocks: list[bytes] = []
    got = 0
    while got < wanted and (block := os.read(descriptor, min(wanted - got, max(size - got, 0) + _BLOCK_BYTES))):
        blocks.append(block)
        got += len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _too_large(path: Any, size: str, what: str, max_bytes: int, error: type[GristmillError]) -> GristmillError:
    return error(f"{os.fspath(path)}: has {size}; {what} has at most {max_bytes:,}.")


def parse_json(
    data: bytes,
    *,
    error: type[GristmillError],
    source: object = "",
    max_items: int | None = None,
    unique_keys: bool = False,
    allow_nan: bool = False,
) -> Any:
    """What the JSON text says; an `error` that names `source` for anything else.

    Stricter than `json.loads`: no NaN, no number beyond a float's range, only UTF-8. `max_items` bounds the values, and
    with them the memory: `[],` takes 3 bytes in a file and 64 as a Python list. `unique_keys` refuses repeated keys;
    `allow_nan` takes NaN and Infinity after all.

    >>> from gristmill.errors import FormatError
    >>> parse_json(b'{"step": 1}', source="a.json", error=FormatError)
    {'step': 1}
    """
    prefix = f"{source}: " if source else ""
    if max_items is not None and (num_items := count_items(data)) > max_items:
        raise error(f"{prefix}holds {num_items:,} items; at most {max_items:,} are read.")
    try:
        return json.loads(
            data.decode(),
            parse_constant=None if allow_nan else _refuse_constant,
            parse_float=None if allow_nan else _finite,
            object_pairs_hook=_without_repeated_keys if unique_keys else None,
        )
    except (ValueError, RecursionError) as failure:  # among the ValueErrors: an integer of more than 4,300 digits
        raise error(f"{prefix}it is not JSON that can be read: {str(failure) or type(failure).__name__}") from None


def count_items(data: bytes) -> int:
    """The number of values in a JSON text, or somewhat more."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def read_json_lines(
    path: Path, *, what: str, max_bytes: int, error: type[GristmillError], skip_damaged: bool = False
) -> Iterator[dict[str, Any]]:
    """The objects of a file with one JSON object per line. A measure may be NaN.

    A last line without a newline that is not whole is left out: it was being written, or its writer was interrupted.
    Any other line that is not an object is an `error` with its number, or left out too (`skip_damaged`).
    """
    lines = read_small_file(path, what=what, max_bytes=max_bytes, error=error).split(b"\n")
    for number, line in enumerate(lines, start=1):
        is_last = number == len(lines)
        if is_last and not line:
            return
        try:
            record = parse_json(line, source=f"{path}:{number}", error=error, allow_nan=True)
            if not isinstance(record, dict):
                raise error(f"{path}:{number}: not a JSON object. The file is damaged.")
        except error:
            if skip_damaged or is_last:
                continue
            raise
        yield record


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"an object has the key {twice[:80]!r} twice.")
    return content


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:80]} is too large.")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}.")
