"""datatrove: `train-00000.ds`, raw tokens, and `train-00000.ds.index`, the document ends as uint64; whole documents."""

from __future__ import annotations

from gristmill.shards.layouts.layout import Layout


class DatatroveLayout(Layout):
    """Raw tokens, and the document ends beside them, which are int64 and uint64 alike."""

    name = "datatrove"
    splits_documents = False

    def token_file(self, name: str, split: str, number: int) -> str:
        """`train-00000.ds`."""
        return f"{split}-{number:05}.ds"

    def index_file(self, name: str, split: str, number: int) -> str:
        """`train-00000.ds.index`."""
        return f"{split}-{number:05}.ds.index"
