"""The content of a tokenizer file: read with a bound, and parsed as JSON only while that is safe."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from gristmill.errors import TokenizerFormatError

MAX_FILE_BYTES = 128 << 20  # published vocabularies have up to 35 MB
# A Python list takes 64 bytes, and `[],` takes 3 in a file: what a parser would build is bounded as well.
MAX_JSON_ITEMS = 10_000_000


def read_content(path: Path, limit: int | None = None) -> bytes:
    """The bytes of the file; with `limit`, the first ones of them. `TokenizerFormatError` for what can be no file."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a pipe without a writer would be waited for
        raise TokenizerFormatError("is a pipe or device; a tokenizer is a file.")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not 0 < size <= MAX_FILE_BYTES:
            raise TokenizerFormatError(f"has {size:,} bytes; a tokenizer has 1 to {MAX_FILE_BYTES:,}.")
        return file.read(size if limit is None else min(size, limit))


def check_content(data: bytes) -> None:
    """Raise if `read_content` and `parse_json` would refuse what is about to be written."""
    if len(data) > MAX_FILE_BYTES or _count_items(data) > MAX_JSON_ITEMS:
        raise TokenizerFormatError(
            f"the vocabulary needs a file of {len(data):,} bytes and {_count_items(data):,} items; at most "
            f"{MAX_FILE_BYTES:,} bytes and {MAX_JSON_ITEMS:,} items are read. Export tokenizer.truncated(...)."
        )


def parse_json(data: bytes) -> Any:
    """What the JSON text says. No key may come twice, and there is no NaN."""
    if _count_items(data) > MAX_JSON_ITEMS:
        raise TokenizerFormatError(f"holds {_count_items(data):,} items; at most {MAX_JSON_ITEMS:,} are read.")
    try:
        return json.loads(data.decode(), object_pairs_hook=_without_repeated_keys, parse_constant=_refuse_constant)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise TokenizerFormatError(f"is not JSON that can be read: {type(error).__name__}: {error}") from None


def _count_items(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise TokenizerFormatError(f"an object has the key {twice[:80]!r} twice.")
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise TokenizerFormatError(f"holds {name}, which is no JSON.")
