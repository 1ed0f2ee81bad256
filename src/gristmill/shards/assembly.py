"""Assembly: which ranges of which parts make up each shard, computed from the counts of the parts.

`SplitWriter` decides where a shard ends while it writes. Here the same positions are computed from prefix sums, so that
each shard can be made by a separate task.

    parts    |   0    |  1  |    2     | 3 |          pieces of a split, in order
    shards   |    0     |     1    |    2  |          shard_tokens each

A document belongs to the shard that has its last token. A document without tokens belongs to the shard of the token
before it. So a document that ends at token `e` belongs to the shard from `begin` to `end` if begin < e <= end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill.shards.layouts import Layout
from gristmill.shards.manifest import SPLITS

HEAD = "head"


class Piece(NamedTuple):
    """Ids of one split in one file of a part."""

    part: int
    stream: str  # "head", "train" or "val"
    begin: int  # in tokens of the split
    num_tokens: int
    num_documents: int

    @property
    def end(self) -> int:
        """End of the piece, in tokens of the split."""
        return self.begin + self.num_tokens


class ShardPlan(NamedTuple):
    """The pieces that one shard is made of."""

    split: str
    number: int
    begin: int  # in tokens of the split
    end: int
    pieces: tuple[Piece, ...]  # every piece that may have tokens or document ends of the shard

    def to_json(self) -> list[Any]:
        """Return the input of `from_json`."""
        return [*self[:4], [list(piece) for piece in self.pieces]]

    @classmethod
    def from_json(cls, value: Any) -> ShardPlan:
        """Return the plan that `to_json` wrote."""
        split, number, begin, end, pieces = value
        return cls(split, number, begin, end, tuple(Piece(*piece) for piece in pieces))

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the shard."""
        return self.end - self.begin

    def choose(self, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the document ends, in tokens of the split, that belong to this shard."""
        first = np.searchsorted(ends, self.begin, side="right") if self.number else 0
        return ends[first : np.searchsorted(ends, self.end, side="right")]


@dataclass(frozen=True, slots=True)
class SplitPieces:
    """The pieces of a split in order, and the size of their texts."""

    pieces: list[Piece]
    source_bytes: int

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all pieces."""
        return self.pieces[-1].end if self.pieces else 0

    @property
    def num_documents(self) -> int:
        """Number of documents in all pieces."""
        return sum(piece.num_documents for piece in self.pieces)


def join_parts(results: Sequence[dict[str, Any]], splits: Sequence[str]) -> dict[str, SplitPieces]:
    """Return the pieces of each split, from the results of `encode_part` in the order of the parts."""
    pieces: dict[str, list[Piece]] = {split: [] for split in splits}
    source_bytes = dict.fromkeys(splits, 0)
    open_split: str | None = None

    def add(split: str, part: int, stream: str, counts: dict[str, int]) -> None:
        begin = pieces[split][-1].end if pieces[split] else 0
        source_bytes[split] += counts["source_bytes"]
        if counts["tokens"] or counts["documents"]:
            pieces[split].append(Piece(part, stream, begin, counts["tokens"], counts["documents"]))

    for part, result in enumerate(results):
        streams = result["streams"]
        if HEAD in streams:
            assert open_split is not None, "a part continues a document that has no beginning"
            add(open_split, part, HEAD, streams[HEAD])
        for split in SPLITS:
            if split in streams:
                add(split, part, split, streams[split])
        if result["left_open"] != HEAD:
            open_split = result["left_open"]
    return {split: SplitPieces(pieces[split], source_bytes[split]) for split in splits}


# Reads the document ends of a piece, in tokens from its beginning.
ReadEnds = Callable[[Piece], NDArray[np.int64]]


def plan_shards(
    joined: dict[str, SplitPieces], layout: Layout, shard_tokens: int | None, read_ends: ReadEnds
) -> list[ShardPlan]:
    """Return the shards of all splits, in order. Calls `read_ends` only for layouts that do not split documents."""
    return [
        shard
        for split, pieces in joined.items()
        for shard in _shards_of(split, pieces.pieces, _stops(pieces.pieces, layout, shard_tokens, read_ends))
    ]


def _stops(pieces: list[Piece], layout: Layout, shard_tokens: int | None, read_ends: ReadEnds) -> Iterator[int]:
    """Yield the ends of the shards, in tokens of the split; nothing for a split without documents."""
    if not pieces:
        return
    num_tokens, at = pieces[-1].end, 0
    if shard_tokens is not None:
        ends = [piece.end for piece in pieces]
        while at + shard_tokens < num_tokens:
            at += shard_tokens
            if not layout.splits_documents:
                at = _first_end(pieces, ends, at, read_ends)
            if at < num_tokens:
                yield at
    yield num_tokens


def _first_end(pieces: list[Piece], ends: list[int], at: int, read_ends: ReadEnds) -> int:
    """Return the first document end at or after token `at`."""
    for piece in pieces[bisect_left(ends, at) :]:
        if piece.num_documents:
            found = read_ends(piece)
            index = int(np.searchsorted(found, at - piece.begin, side="left"))
            if index < len(found):
                return piece.begin + int(found[index])
    return pieces[-1].end


def _shards_of(split: str, pieces: list[Piece], stops: Iterator[int]) -> Iterator[ShardPlan]:
    begins, ends = [piece.begin for piece in pieces], [piece.end for piece in pieces]
    begin = 0
    for number, stop in enumerate(stops):
        # A piece that ends where the shard begins has nothing for it, except for the first shard. A piece that begins
        # where the shard ends may start with documents without tokens, which belong to the shard.
        first = bisect_right(ends, begin) if number else 0
        yield ShardPlan(split, number, begin, stop, tuple(pieces[first : bisect_right(begins, stop)]))
        begin = stop
