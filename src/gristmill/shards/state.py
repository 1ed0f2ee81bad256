"""How far a run has come: what a checkpoint holds, and what a resumed run reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gristmill.corpus.batches import Mark
from gristmill.errors import ShardsFormatError
from gristmill.shards.manifest import ShardEntry, Split


@dataclass(slots=True)
class SplitState:
    """How far a split has come: its published shards, and what is in the part."""

    shards: list[ShardEntry] = field(default_factory=list)
    part_tokens: int = 0
    part_documents: int = 0
    part_end: int = 0  # where the last document that ends in the part ends
    source_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads, but for the shards: they are many, and the journal has them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "shards"}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SplitState:
        """The state that `to_json` gave, with the shards of the journal."""
        return cls(**{**value, "shards": [ShardEntry(**shard) for shard in value["shards"]]})

    def split(self) -> Split:
        """The published shards, as a manifest has them."""
        return Split(
            documents=sum(shard.documents for shard in self.shards),
            tokens=sum(shard.tokens for shard in self.shards),
            source_bytes=self.source_bytes,
            shards=tuple(self.shards),
        )


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that a run needs to resume from here."""

    state: dict[str, Any]  # of the position and of each split, as `read_state` reads it
    parts: dict[str, int]  # the hidden files that are needed, with their sizes
    shards: dict[str, Sequence[ShardEntry]]  # all published shards of each split


@dataclass(slots=True)
class Position:
    """How far the corpus was encoded: all that is needed to resume from there, beside the states of the splits."""

    index: int = 0  # of the input
    mark: Mark = field(default_factory=Mark)
    open_split: str | None = None  # of the document that goes on there
    num_nulls: int = 0
    skipped: dict[int, str] = field(default_factory=dict)  # why inputs were left out

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads. Readers are ahead: an input behind this place will be judged again."""
        before = [[index, reason] for index, reason in sorted(self.skipped.items()) if index < self.index]
        return dataclasses.asdict(self) | {"mark": list(self.mark), "skipped": before}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Position:
        """The position that `to_json` gave."""
        return cls(**{**value, "mark": Mark(*value["mark"]), "skipped": dict(value["skipped"])})


def read_state(state: dict[str, Any] | None, folder: Path) -> tuple[Position, dict[str, SplitState]]:
    """Where to begin, and the states of the splits by their names."""
    if state is None:
        return Position(), {}
    try:
        splits = {split: SplitState.from_json(value) for split, value in state["splits"].items()}
        return Position.from_json(state["position"]), splits
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ShardsFormatError(
            f"{folder}: progress.json is damaged, and the run cannot resume. Pass overwrite=True to start again."
        ) from None


def why_empty(position: Position) -> str:
    """The message of the error of a corpus without documents."""
    skipped, nulls = len(position.skipped), position.num_nulls
    reasons = [f"{skipped:,} input{'s were' if skipped > 1 else ' was'} skipped"] * (skipped > 0)
    reasons += [f"{nulls:,} text{'s are' if nulls > 1 else ' is'} null"] * (nulls > 0)
    why = f" ({', '.join(reasons)})" if reasons else ""
    return f"the corpus holds no documents{why}: there is nothing to encode, and no folder was made."
