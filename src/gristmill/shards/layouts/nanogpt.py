"""nanoGPT: `train.bin` and `val.bin`, raw uint16 and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill.errors import OptionError
from gristmill.shards.layouts.layout import NUM_UINT16, UINT16, Layout


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
