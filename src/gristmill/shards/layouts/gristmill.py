"""gristmill: `shard-00000.bin`, raw tokens, and `shard-00000.idx`, the document ends in it; what `Shards` reads.

Every shard but the last of a split has exactly as many tokens as was asked for, so token number i is found by a
division. A document may lie across shards; the index of the shard in which it ends has its end, in tokens from the
beginning of that shard.
"""

from __future__ import annotations

from gristmill.shards.layouts.layout import Layout


class GristmillLayout(Layout):
    """Raw tokens, and the document ends beside them."""

    name = "gristmill"
    any_width = True

    def token_file(self, name: str, split: str, number: int) -> str:
        """`shard-00000.bin`; of the validation split `val-00000.bin`."""
        return f"{_stem(split)}-{number:05}.bin"

    def index_file(self, name: str, split: str, number: int) -> str:
        """`shard-00000.idx`."""
        return f"{_stem(split)}-{number:05}.idx"


def _stem(split: str) -> str:
    return "shard" if split == "train" else split
