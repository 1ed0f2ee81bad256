"""TrainingData: what a run needs to know of its data, whichever kind its model takes.

`WindowData` (window_data.py) are windows over all tokens of shards; `DocumentData` (document_data.py) are documents of
shards or of Parquet files, one sequence each. The options of a model decide which: `WindowOptions`, `DocumentOptions`.
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

NO_VALIDATION = "the shards have no validation split. Encode with val_fraction=0.01 to have one."


class Dataset(Protocol):
    """Batches as a pure function of step and rank: `TokenDataset`, `SequenceDataset`."""

    @property
    def num_sequences(self) -> int:
        """The sequences of the split."""

    def batch(
        self, step: int, *, rank: int = 0, world_size: int = 1, micro_step: int = 0, num_micro_steps: int = 1
    ) -> Batch:
        """A micro-batch of a step on a rank, on the device."""

    def tokens_in_step(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> tuple[int, int]:
        """(tokens, the same with padding) of all micro-batches of all ranks in a step."""

    def validation_batches(
        self, num_batches: int | None = None, *, num_sequences: int | None = None, rank: int = 0, world_size: int = 1
    ) -> Iterator[Batch]:
        """A fixed subset in a fixed order; without a number, everything."""

    def close(self) -> None:
        """End what reads ahead."""


class TrainingData(Protocol):
    """The data of a run, before it is known how it is cut into batches."""

    noun: str  # what it is called in messages
    num_tokens: int
    embedding_dim: int | None
    identity: dict[str, Any]  # by which a resumed run recognizes its data
    uses_workers: bool  # whether processes prepare the batches
    even_batches: bool  # whether every micro-batch of a step has as many targets
    messages: list[str]  # what a person should know about it
    no_validation: str  # what to report where there is nothing to validate on

    @property
    def vocab_size(self) -> int | None:
        """The ids are below it; None for vectors."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer that made the tokens, if it is known."""

    @property
    def tokens_per_sequence(self) -> float:
        """The mean number of tokens in a sequence of a batch, without padding."""

    def open_dataset(
        self, split: str, *, batch_size: int, seed: int, device: torch.device, vocab_size: int | None
    ) -> Dataset | None:
        """The batches of a split, whose ids must be below `vocab_size`; None where there is no such split."""

    def start_messages(self, dataset: Dataset, *, world_size: int) -> list[str]:
        """What a person should know about the batches before the first step."""

    def bits_per_byte(self, loss: float, split: str) -> float | None:
        """A loss in nats per token as bits per byte of the texts; None where they are not known."""


def check_data(data: Any) -> None:
    """Raise for what is neither a path nor shards, such as texts or a table, and for the folder of a run."""
    if not isinstance(data, str | os.PathLike | Shards):
        raise TypeError(
            f"data is a {type(data).__name__}. Pass the path of a folder of token shards, or gm.Shards. To make shards "
            f"from texts or a table, call encode_corpus()."
        )


def check_is_no_run(data: str | os.PathLike[str] | Shards) -> None:
    """Raise `OptionError` for the folder of a run in the place of data."""
    if not isinstance(data, Shards) and is_run(Path(data)):
        raise OptionError(
            f"{data}: it is the folder of a run, and the data to train on is needed: token shards. To resume that run, "
            f"pass it as out with resume='auto'; to start from its weights, pass init_from={str(data)!r}."
        )


def warn_of_guessed_vocabulary(data: TrainingData, vocab_size: int | None) -> None:
    """Name the vocabulary size that is used where neither the data nor `vocab_size` states one."""
    if vocab_size is None and data.tokenizer is None and data.vocab_size is not None:
        warn_user(
            f"the {data.noun} do not state the size of the vocabulary. Every id was read, and "
            f"vocab_size={data.vocab_size} is used, the largest id + 1. Pass vocab_size=… with that of the tokenizer "
            f"that made the ids.",
            FormatWarning,
        )


def is_shards(data: Any) -> bool:
    """Whether it is a folder of token shards, opened or not."""
    return isinstance(data, Shards) or (Path(data) / MANIFEST_FILE).exists()
