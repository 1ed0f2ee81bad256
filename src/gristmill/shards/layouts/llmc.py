"""llm.c and modded-nanogpt: `NAME_train_000001.bin`, a header of 256 int32 and the tokens.

Header: magic, version, number of tokens, zeros. uint16 tokens have magic 20240520 and version 1; larger vocabularies
have uint32 tokens, magic 20240801 and version 7. The end-of-text id comes *before* each document. A foreign file is
recognized by the magic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.errors import ShardsFormatError
from gristmill.shards.layouts.layout import INT32, UINT16, UINT32, FoundFile, Layout, read_head

NUM_FIELDS = 256
MAGIC = {2: (20240520, 1), 4: (20240801, 7)}  # by the bytes of a token


class LlmcLayout(Layout):
    """A header of 1,024 bytes, then tokens."""

    name = "llmc"
    header_bytes = NUM_FIELDS * INT32.itemsize
    max_tokens = 2**31 - 1  # the header counts them in an int32
    end_of_text = "before"

    def token_file(self, name: str, split: str, number: int) -> str:
        """`NAME_val_000000.bin`, `NAME_train_000001.bin`: training shards are counted from 1."""
        return f"{_plain(name)}_{split}_{number + (split == 'train'):06}.bin"

    def header(self, num_tokens: int, dtype: np.dtype[Any]) -> bytes:
        """Magic, version and number of tokens."""
        self.check_num_tokens(num_tokens)
        fields = np.zeros(NUM_FIELDS, INT32)
        fields[:3] = *MAGIC[dtype.itemsize], num_tokens
        return fields.tobytes()

    def find_files(self, folder: Path, names: Sequence[str]) -> list[FoundFile]:
        """Return the `.bin` files that begin with one of the two magic numbers."""
        found = [_found(folder / name) for name in names if name.endswith(".bin")]
        return [file for file in found if file is not None]


def _plain(name: str) -> str:
    """Return `name` as the start of a file name: not hidden, not too long, without special characters."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".")[:50] or "tokens"


def _found(path: Path) -> FoundFile | None:
    head = read_head(path, LlmcLayout.header_bytes)
    magic = int.from_bytes(head[: INT32.itemsize], "little")
    versions = dict(MAGIC.values())
    if magic not in versions:
        return None
    if len(head) < LlmcLayout.header_bytes:
        raise ShardsFormatError(
            f"{path}: the llm.c header has {LlmcLayout.header_bytes:,} bytes, but this file has {len(head):,}. Copy "
            f"it again if it is truncated."
        )
    _, version, num_tokens = np.frombuffer(head, INT32, 3).tolist()
    if version != versions[magic]:
        raise ShardsFormatError(
            f"{path}: version {version} of the llm.c format with magic number {magic} is not supported; Gristmill "
            f"reads version {versions[magic]}. Encode again, or convert the file."
        )
    for dtype in (UINT16, UINT32):
        if (magic, version) == MAGIC[dtype.itemsize]:
            expected = len(head) + num_tokens * dtype.itemsize
            if num_tokens < 0 or path.stat().st_size != expected:
                raise ShardsFormatError(
                    f"{path}: its header counts {num_tokens:,} {dtype.name} tokens, which take {expected:,} bytes, but "
                    f"its size is {path.stat().st_size:,}. Copy it again if it is truncated."
                )
            return FoundFile(path.name, num_tokens, dtype)
    return None
