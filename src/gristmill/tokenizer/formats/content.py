"""The content of a tokenizer file: read with a bound, and parsed as JSON only while that is safe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gristmill.errors import TokenizerFormatError
from gristmill.small_files import count_items, read_small_file
from gristmill.small_files import parse_json as parse_any_json

MAX_FILE_BYTES = 128 << 20  # published vocabularies have up to 35 MB
MAX_JSON_ITEMS = 10_000_000


def read_content(path: Path, first_bytes: int | None = None) -> bytes:
    """The bytes of the file, or only the first ones; `TokenizerFormatError` for what can be no tokenizer."""
    data = read_small_file(
        path, what="a tokenizer", max_bytes=MAX_FILE_BYTES, error=TokenizerFormatError, first_bytes=first_bytes
    )
    if not data:
        raise TokenizerFormatError(f"{path}: has 0 bytes; a tokenizer has 1 to {MAX_FILE_BYTES:,}.")
    return data


def check_content(data: bytes) -> None:
    """Raise if `read_content` and `parse_json` would refuse what is about to be written."""
    num_items = count_items(data)
    if len(data) > MAX_FILE_BYTES or num_items > MAX_JSON_ITEMS:
        raise TokenizerFormatError(
            f"the vocabulary needs a file of {len(data):,} bytes and {num_items:,} items; at most "
            f"{MAX_FILE_BYTES:,} bytes and {MAX_JSON_ITEMS:,} items are read. Export tokenizer.truncated(...)."
        )


def parse_json(data: bytes) -> Any:
    """What the JSON text of a tokenizer says; no key may come twice."""
    return parse_any_json(data, error=TokenizerFormatError, max_items=MAX_JSON_ITEMS, unique_keys=True)
