"""llm.c and modded-nanogpt: `NAME_train_000001.bin`, a header of 256 int32 and the tokens.

Header: magic, version, number of tokens, zeros. uint16 are magic 20240520 and version 1; larger vocabularies have
uint32, magic 20240801 and version 7. The end-of-text id stands *before* each document.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gristmill.shards.layouts.layout import INT32, Layout

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


def _plain(name: str) -> str:
    """`name` as the beginning of a file name: not hidden, not too long, without characters that mean something."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".")[:50] or "tokens"
