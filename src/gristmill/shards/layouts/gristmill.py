"""gristmill: `shard-00000.bin`, raw tokens, and `shard-00000.idx`, its document ends; the format of `Shards`.

Every shard except the last of a split has exactly `shard_tokens` tokens, so token number i is found by a division. A
document may span shards; the index of the shard in which it ends has its end, in tokens from the beginning of that
shard.
"""

from __future__ import annotations

from gristmill.shards.layouts.layout import Layout


class GristmillLayout(Layout):
    """Raw tokens, and the document ends beside them."""

    name = "gristmill"
    any_width = True

    def token_file(self, name: str, split: str, number: int) -> str:
        """`shard-00000.bin`; for the validation split `val-00000.bin`."""
        return f"{_stem(split)}-{number:05}.bin"

    def index_file(self, name: str, split: str, number: int) -> str:
        """`shard-00000.idx`."""
        return f"{_stem(split)}-{number:05}.idx"


def _stem(split: str) -> str:
    return "shard" if split == "train" else split
