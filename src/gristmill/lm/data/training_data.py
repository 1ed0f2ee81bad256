"""TrainingData: the interface between a run and its data, for every kind of data.

`WindowData` (window_data.py) has windows over all tokens of shards. `DocumentData` (document_data.py) has documents of
shards or Parquet files, one sequence per document. The options of a model decide which: `WindowOptions` or
`DocumentOptions`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from gristmill.errors import FormatWarning, OptionError, warn_user
from gristmill.lm.data.batch import Batch
from gristmill.lm.explain import is_run
from gristmill.shards import Shards
from gristmill.shards.manifest import MANIFEST_FILE

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer

__all__ = ["NO_VALIDATION", "Dataset", "TrainingData", "check_data", "is_shards", "warn_of_guessed_vocabulary"]

NO_VALIDATION = "the shards have no validation split. Encode with val_fraction=0.01 to create one."


class Dataset(Protocol):
    """Batches as a pure function of step and rank: `TokenDataset`, `SequenceDataset`."""

    @property
    def num_sequences(self) -> int:
        """Number of sequences in the split."""

    def batch(
        self, step: int, *, rank: int = 0, world_size: int = 1, micro_step: int = 0, num_micro_steps: int = 1
    ) -> Batch:
        """Return a micro-batch of a step for a rank, on the device."""

    def tokens_in_step(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> tuple[int, int]:
        """Return (tokens, tokens with padding) of all micro-batches of all ranks in a step."""

    def validation_batches(
        self, num_batches: int | None = None, *, num_sequences: int | None = None, rank: int = 0, world_size: int = 1
    ) -> Iterator[Batch]:
        """Yield a fixed subset in a fixed order; without a number, everything."""

    def close(self) -> None:
        """Stop threads and processes that prefetch."""


class TrainingData(Protocol):
    """The data of a run, before it is cut into batches."""

    noun: str  # its name in messages
    num_tokens: int
    embedding_dim: int | None
    identity: dict[str, Any]  # fingerprints by which a resumed run recognizes its data
    uses_workers: bool  # whether processes prepare the batches
    even_batches: bool  # whether all micro-batches of a step have the same number of targets
    messages: list[str]  # for the user
    no_validation: str  # message if there is no validation data

    @property
    def vocab_size(self) -> int | None:
        """All ids are below it; None for vectors."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the tokens, if known."""

    @property
    def tokens_per_sequence(self) -> float:
        """Mean number of tokens per sequence of a batch, without padding."""

    def open_dataset(
        self, split: str, *, batch_size: int, seed: int, device: torch.device, vocab_size: int | None
    ) -> Dataset | None:
        """Return the batches of a split, whose ids must be below `vocab_size`; None if there is no such split."""

    def start_messages(self, dataset: Dataset, *, world_size: int) -> list[str]:
        """Return messages about the batches for the user, shown before the first step."""

    def bits_per_byte(self, loss: float, split: str) -> float | None:
        """Convert a loss in nats per token to bits per byte of the texts; None if their size is unknown."""


def check_data(data: Any) -> None:
    """Raise `TypeError` for values that are neither a path nor shards, such as texts or a table."""
    if not isinstance(data, str | os.PathLike | Shards):
        raise TypeError(
            f"data is of type {type(data).__name__}. Pass the path of a folder of token shards, or gm.Shards. To make "
            f"shards from texts or a table, call encode_corpus()."
        )


def check_is_no_run(data: str | os.PathLike[str] | Shards) -> None:
    """Raise `OptionError` if `data` is the folder of a run."""
    if not isinstance(data, Shards) and is_run(Path(data)):
        raise OptionError(
            f"{data}: this is the folder of a run, not training data. Pass token shards. To resume that run, pass it "
            f"as out with resume='auto'; to start from its weights, pass init_from={str(data)!r}."
        )


def warn_of_guessed_vocabulary(data: TrainingData, vocab_size: int | None) -> None:
    """Warn about the vocabulary size in use if neither the data nor `vocab_size` states one."""
    if vocab_size is None and data.tokenizer is None and data.vocab_size is not None:
        warn_user(
            f"the {data.noun} do not state the vocabulary size. Using vocab_size={data.vocab_size}, the largest id in "
            f"the data + 1. Pass vocab_size=… with that of the tokenizer that made the ids.",
            FormatWarning,
        )


def is_shards(data: Any) -> bool:
    """Whether `data` is `Shards` or the path of a folder of token shards."""
    return isinstance(data, Shards) or (Path(data) / MANIFEST_FILE).exists()
