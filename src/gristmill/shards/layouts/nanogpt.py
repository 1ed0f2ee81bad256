"""nanoGPT: `train.bin` and `val.bin`, raw uint16 and nothing else.

Nothing in these files says what they are, so a foreign folder is recognized by their names alone, once no other layout
claims it (`LAYOUTS` asks this one last).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.errors import OptionError, ShardsFormatError
from gristmill.shards.layouts.layout import NUM_UINT16, UINT16, FoundFile, Layout


class NanogptLayout(Layout):
    """Raw uint16, one file a split."""

    name = "nanogpt"
    shard_tokens = None

    def dtype(self, vocab_size: int) -> np.dtype[Any]:
        """uint16: the file does not say what it holds, and its readers take nothing else."""
        if vocab_size > NUM_UINT16:
            raise OptionError(
                f"the format 'nanogpt' holds ids up to 65535 (uint16), and the vocabulary has {vocab_size:,}. "
                f"Pass format='gristmill', 'llmc' or 'megatron', which hold larger ones."
            )
        return UINT16

    def token_file(self, name: str, split: str, number: int) -> str:
        """`train.bin`."""
        assert number == 0
        return f"{split}.bin"

    def find_files(self, folder: Path, names: Sequence[str]) -> list[FoundFile]:
        """`train.bin` and `val.bin`."""
        return [_found(folder / name) for name in ("train.bin", "val.bin") if name in names]


def _found(path: Path) -> FoundFile:
    num_tokens, rest = divmod(path.stat().st_size, UINT16.itemsize)
    if rest:
        raise ShardsFormatError(
            f"{path}: it is taken for a file of nanoGPT, which holds two bytes per token, and has an odd number of "
            f"bytes. Copy it again if it was cut short."
        )
    return FoundFile(path.name, num_tokens, UINT16)
