"""State of a run: the content of a checkpoint, which a resumed run reads."""

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
    """State of a split: its published shards, and the content of the part."""

    shards: list[ShardEntry] = field(default_factory=list)
    part_tokens: int = 0
    part_documents: int = 0
    part_end: int = 0  # end of the last document that ends in the part
    source_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the input of `from_json`, without the shards: they are many, and the journal has them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "shards"}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SplitState:
        """Return the state that `to_json` wrote, with the shards of the journal."""
        return cls(**{**value, "shards": [ShardEntry(**shard) for shard in value["shards"]]})

    def split(self) -> Split:
        """Return the published shards in the form of the manifest."""
        return Split(
            documents=sum(shard.documents for shard in self.shards),
            tokens=sum(shard.tokens for shard in self.shards),
            source_bytes=self.source_bytes,
            shards=tuple(self.shards),
        )


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything a run needs to resume from here."""

    state: dict[str, Any]  # position and splits, in the form that `read_state` reads
    parts: dict[str, int]  # required part files with their sizes
    shards: dict[str, Sequence[ShardEntry]]  # all published shards of each split


@dataclass(slots=True)
class Position:
    """Position in the corpus: with the states of the splits, everything a run needs to resume."""

    index: int = 0  # of the input
    mark: Mark = field(default_factory=Mark)
    open_split: str | None = None  # split of the document that continues there
    num_nulls: int = 0
    skipped: dict[int, str] = field(default_factory=dict)  # reasons of skipped inputs

    def to_json(self) -> dict[str, Any]:
        """Return the input of `from_json`. Inputs after this position, which readers may have skipped, are left out."""
        before = [[index, reason] for index, reason in sorted(self.skipped.items()) if index < self.index]
        return dataclasses.asdict(self) | {"mark": list(self.mark), "skipped": before}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Position:
        """Return the position that `to_json` wrote."""
        return cls(**{**value, "mark": Mark(*value["mark"]), "skipped": dict(value["skipped"])})


def read_state(state: dict[str, Any] | None, folder: Path) -> tuple[Position, dict[str, SplitState]]:
    """Return the position to start at, and the states of the splits by name."""
    if state is None:
        return Position(), {}
    try:
        splits = {split: SplitState.from_json(value) for split, value in state["splits"].items()}
        return Position.from_json(state["position"]), splits
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ShardsFormatError(
            f"{folder}: progress.json is damaged, so the run cannot resume. Pass overwrite=True to start again."
        ) from None


def why_empty(position: Position) -> str:
    """Return the error message for a corpus without documents."""
    skipped, nulls = len(position.skipped), position.num_nulls
    reasons = [f"{skipped:,} input{'s were' if skipped > 1 else ' was'} skipped"] * (skipped > 0)
    reasons += [f"{nulls:,} text{'s are' if nulls > 1 else ' is'} null"] * (nulls > 0)
    why = f" ({', '.join(reasons)})" if reasons else ""
    return f"the corpus has no documents{why}. No folder was made."
