"""Read small files from untrusted paths, up to a size limit, and parse them as JSON.

Manifests, configs, records and tokenizers may come from anyone, and their paths may point to anything. A pipe without a
writer blocks its reader, /dev/zero never ends, a file may be larger than memory, and JSON may be nested too deeply for
the parser's stack. Each of these cases raises an error before memory runs out.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

from gristmill.errors import GristmillError

__all__ = ["open_regular", "parse_json", "read_json_lines", "read_small_file"]

# Do not wait for the writer of a pipe, and do not make a terminal the controlling terminal.
_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
    _FLAGS |= getattr(os, _name, 0)
_BLOCK_BYTES = 1 << 16
MAX_ITEMS = 1 << 25  # values of a JSON text, which take up to 2 GB
MAX_LINE_ITEMS = 1 << 20  # of one line of JSON lines; a measurement of a model has thousands


def read_small_file(
    path: str | os.PathLike[str],
    *,
    what: str,
    max_bytes: int,
    error: type[GristmillError],
    first_bytes: int | None = None,
) -> bytes:
    """Return the content of a regular file; with `first_bytes`, only its beginning.

    Raises `error` for a pipe, a device, a file larger than `max_bytes` and an impossible file name. `what`, such as
    "a manifest", is the expected kind of file in messages. A folder raises IsADirectoryError.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except ValueError as failure:
        is_character = isinstance(failure, UnicodeEncodeError)  # otherwise the name contains a NUL byte
        why = "a character that file names on this system cannot contain" if is_character else "a NUL byte"
        raise error(f"{os.fspath(path)!r}: not a valid file name: it has {why}. Pass another name.") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, f"Is a folder; {what} must be a file", os.fspath(path))
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{os.fspath(path)}: is a pipe or device; {what} must be a regular file.")
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


def open_regular(path: str | os.PathLike[str], *, error: type[GristmillError]) -> FileIO:
    """Open a file of any size for reading, without a buffer. Raises `error` for a pipe or device.

    A folder raises IsADirectoryError.
    """

    def opener(name: str, _: int) -> int:
        return os.open(name, _FLAGS)

    file = open(path, "rb", buffering=0, opener=opener)  # noqa: SIM115 - returned
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise error(f"{os.fspath(path)}: is a pipe or device, not a regular file. Restore the file.")
    return file


def _read(descriptor: int, wanted: int, size: int) -> bytes:
    """Return up to `wanted` bytes. `size` is only a hint: the file may grow, and files in /proc report size 0."""
    blocks: list[bytes] = []
    got = 0
    while got < wanted and (block := os.read(descriptor, min(wanted - got, max(size - got, 0) + _BLOCK_BYTES))):
        blocks.append(block)
        got += len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _too_large(path: Any, size: str, what: str, max_bytes: int, error: type[GristmillError]) -> GristmillError:
    return error(f"{os.fspath(path)}: has {size}, but {what} can have at most {max_bytes:,}.")


def parse_json(
    data: bytes,
    *,
    error: type[GristmillError],
    source: object = "",
    max_items: int = MAX_ITEMS,
    unique_keys: bool = False,
    allow_nan: bool = False,
) -> Any:
    """Return the value of a JSON text. Raises `error`, which names `source`, for anything else.

    Stricter than `json.loads`: no NaN, no number beyond the range of a float, only UTF-8. `max_items` limits the number
    of values, and so the memory: `[],` takes 3 bytes in a file and 64 as a Python list. By default, 33 million are
    allowed. `unique_keys` rejects repeated keys. `allow_nan` accepts NaN and Infinity.

    >>> from gristmill.errors import FormatError
    >>> parse_json(b'{"step": 1}', source="a.json", error=FormatError)
    {'step': 1}
    """
    prefix = f"{source}: " if source else ""
    if len(data) > max_items and (num_items := count_items(data)) > max_items:
        raise error(f"{prefix}has {num_items:,} items; at most {max_items:,} are allowed.")
    try:
        return json.loads(
            data.decode(),
            parse_constant=None if allow_nan else _refuse_constant,
            parse_float=None if allow_nan else _finite,
            object_pairs_hook=_without_repeated_keys if unique_keys else None,
        )
    except (ValueError, RecursionError) as failure:  # ValueError includes an integer of more than 4,300 digits
        raise error(f"{prefix}not valid JSON: {str(failure) or type(failure).__name__}") from None


def count_items(data: bytes) -> int:
    """Return an upper bound of the number of values in a JSON text."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def read_json_lines(
    path: Path, *, what: str, max_bytes: int, error: type[GristmillError], skip_damaged: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file with one JSON object per line. Numbers may be NaN.

    An incomplete last line is skipped: it is still being written, or its writer was interrupted. Any other line that is
    not an object raises `error` with its number, or is skipped as well (`skip_damaged`).
    """
    lines = read_small_file(path, what=what, max_bytes=max_bytes, error=error).split(b"\n")
    for number, line in enumerate(lines, start=1):
        is_last = number == len(lines)
        if is_last and not line:
            return
        try:
            record = parse_json(line, source=f"{path}:{number}", error=error, max_items=MAX_LINE_ITEMS, allow_nan=True)
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
        raise ValueError(f"an object has the key {twice[:80]!r} twice")
    return content


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:80]} is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it contains {name}")
