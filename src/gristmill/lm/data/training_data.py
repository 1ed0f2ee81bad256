"""TrainingData: what a run needs to know of its data, whichever model it trains.

A decoder reads windows over all tokens of shards (`WindowData`), a VAE one sequence a document, of shards or of Parquet
files (`DocumentData`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from gristmill.errors import FormatWarning, OptionError, warn_user
from gristmill.lm.data.batch import Batch
from gristmill.lm.data.token_dataset import TokenDataset
from gristmill.lm.explain import is_run
from gristmill.shards import Shards
from gristmill.shards.manifest import MANIFEST_FILE

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.data.sequences import SequenceData, SequenceDataset, SequenceSource
    from gristmill.lm.training.config import TrainConfig

__all__ = [
    "Dataset",
    "DocumentData",
    "TrainingData",
    "WindowData",
    "check_data",
    "is_shards",
    "open_training_data",
    "said_at_the_start",
    "warn_of_guessed_vocabulary",
]


BATCH_NORM_LEAST = 16  # sequences at once
CHUNK_TOKENS = 1 << 20


class Dataset(Protocol):
    """Batches as a pure function of step and rank: `TokenDataset`, `SequenceDataset`."""

    @property
    def num_val_batches(self) -> int:
        """The batches of `validation_batches` on one rank."""

    def batch(
        self, step: int, *, rank: int = 0, world_size: int = 1, micro_step: int = 0, num_micro_steps: int = 1
    ) -> Batch:
        """A micro-batch of a step on a rank, on the device."""

    def tokens_in_step(self, step: int, *, world_size: int = 1, num_micro_steps: int = 1) -> tuple[int, int]:
        """(tokens, the same with padding) of all micro-batches of all ranks in a step."""

    def validation_batches(
        self, num_batches: int | None = None, *, rank: int = 0, world_size: int = 1
    ) -> Iterator[Batch]:
        """A fixed subset in a fixed order; None: everything."""

    def close(self) -> None:
        """End what reads ahead."""


class TrainingData(Protocol):
    """The data of a run, before it is known how it is cut into batches."""

    noun: str  # what it is called in messages
    num_tokens: int
    embedding_dim: int | None
    identity: dict[str, Any]  # what tells data apart
    uses_workers: bool  # whether batches are prepared by processes
    messages: list[str]  # what a person should know about it
    no_validation: str  # what to say where there is nothing for it

    @property
    def vocab_size(self) -> int | None:
        """The ids are below it; None for vectors."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What the tokens were made with, if that is known."""

    def tokens_per_sequence(self, config: TrainConfig) -> float:
        """The tokens of one sequence of a batch, padding left out, on the average."""

    def open_dataset(self, config: TrainConfig, device: torch.device, split: str) -> Dataset | None:
        """The batches of a split for a resolved config; None where there is no such split."""

    def bits_per_byte(self, loss: float, split: str) -> float | None:
        """What a loss in nats a token comes to in bits a byte of the texts; None where they are not known."""


def open_training_data(
    data: str | os.PathLike[str] | Shards, config: TrainConfig, *, split: str = "train", progress: Any = None
) -> TrainingData:
    """The data that the model of `config` is trained on."""
    check_data(data)
    if not isinstance(data, Shards) and is_run(Path(data)):
        raise OptionError(
            f"{data}: it is the folder of a run, and the data to train on is needed: token shards. To resume that run, "
            f"pass it as out with resume='auto'; to start from its weights, pass init_from={str(data)!r}."
        )
    if config.model == "vae":
        if isinstance(data, Shards) and data.has_manifest:
            data = data.paths[0].parent  # which has all splits
        return DocumentData(open_documents(data, config, progress=progress))
    if isinstance(data, Shards):
        return WindowData(data)
    if not is_shards(data) and (_has_parquet(Path(data)) or str(data).endswith(".parquet")):
        raise OptionError(
            f"{data}: model={config.model!r} is trained on token shards. Make them with "
            f"encode_corpus(), or pass model='vae', which takes Parquet files too."
        )
    return WindowData(Shards(data, split=split))


def check_data(data: Any) -> None:
    """Raise TypeError for what is neither a path nor shards, such as texts or a table."""
    if not isinstance(data, str | os.PathLike | Shards):
        raise TypeError(
            f"data is a {type(data).__name__}. Pass the path of a folder of token shards, or gm.Shards. To make shards "
            f"from texts or a table, call encode_corpus()."
        )


def warn_of_guessed_vocabulary(data: TrainingData, config: TrainConfig) -> None:
    """Name the vocabulary size that is used where neither the data nor `config` states one."""
    if config.vocab_size is None and data.tokenizer is None and data.vocab_size is not None:
        warn_user(
            f"the {data.noun} do not state the size of the vocabulary. Every id was read, and "
            f"vocab_size={data.vocab_size} is used, the largest id + 1. Pass vocab_size=… with that of the tokenizer "
            f"that made the ids.",
            FormatWarning,
        )


def is_shards(data: Any) -> bool:
    """Whether it is a folder of token shards, opened or not."""
    return isinstance(data, Shards) or (Path(data) / MANIFEST_FILE).exists()


def _has_parquet(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.parquet"))


def open_documents(data: Any, config: TrainConfig, *, tokenizer: Any = None, progress: Any = None) -> SequenceData:
    """The documents as sequences, read as `config` says. Which of them are for validation depends on no seed."""
    from gristmill.lm.data.sequences import open_sequences
    from gristmill.lm.training.config import TrainConfig

    opened = open_sequences(
        data,
        max_sequence_length=config.max_sequence_length,
        tokenizer=config.tokenizer if tokenizer is None else tokenizer,
        text_column=config.text_column,
        tokens_column=config.tokens_column,
        embedding_columns=config.embedding_columns,
        val_fraction=config.val_fraction,
        cache_dir=config.cache_dir,
        progress=progress,
    )
    if not opened.from_parquet and config.val_fraction != TrainConfig.val_fraction:
        raise OptionError(
            f"val_fraction={config.val_fraction} is for Parquet files: shards were divided when they were encoded. "
            f"Leave it out, or encode them again with another val_fraction."
        )
    return opened


class WindowData:
    """Shards, read in windows of `context_length` tokens across all documents."""

    noun = "shards"
    embedding_dim: int | None = None
    uses_workers = False
    no_validation = "the shards have no validation split. Encode with val_fraction=0.01 to have one."

    def __init__(self, shards: Shards) -> None:
        """Of the split that `shards` were opened for, and of the split "val" beside it."""
        from gristmill.lm.training.checkpoint import shards_identity

        self._shards = shards
        self.num_tokens = shards.num_tokens
        self.identity = shards_identity(shards)
        self.messages: list[str] = []

    @cached_property
    def vocab_size(self) -> int:
        """That of the tokenizer; for shards of another program that were opened without one, the largest id + 1."""
        return self._shards.vocab_size or _largest_id(self._shards) + 1

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the shards; None for those of another program that were opened without one."""
        return None if self._shards.tokenizer_fingerprint is None else self._shards.tokenizer

    def tokens_per_sequence(self, config: TrainConfig) -> float:
        """All windows are of one length."""
        return config.context_length

    def open_dataset(self, config: TrainConfig, device: torch.device, split: str) -> TokenDataset | None:
        """The windows of a split."""
        assert isinstance(config.batch_size, int)  # it is resolved
        shards = self._split(split)
        if shards is None:
            return None
        return TokenDataset(
            shards,
            context_length=config.context_length,
            batch_size=config.batch_size,
            seed=config.seed,
            document_mask=config.document_mask,
            device=device,
        )

    def bits_per_byte(self, loss: float, split: str) -> float | None:
        """By the tokens and the bytes of the split; None where another program made the shards."""
        shards = self._split(split)
        assert shards is not None  # there is a loss on it
        return bits_per_byte(loss, shards) if shards.has_manifest else None

    def _split(self, split: str) -> Shards | None:
        if split == self._shards.split:
            return self._shards
        if split not in self._shards.splits:
            return None
        return self._shards.other_split(split)


class DocumentData:
    """Documents of shards or of Parquet files, one sequence each."""

    noun = "data"

    def __init__(self, data: SequenceData) -> None:
        """What `open_sequences` found."""
        self._data = data
        self.num_tokens = data.train.num_tokens
        self.vocab_size = data.vocab_size
        self.embedding_dim = data.embedding_dim
        self.tokenizer = data.tokenizer
        self.identity = data.identity
        self.uses_workers = data.from_parquet
        self.messages = list(data.messages)
        self.no_validation = WindowData.no_validation
        if data.from_parquet:
            self.no_validation = "no document fell into validation. Pass a larger val_fraction to have some."

    def tokens_per_sequence(self, config: TrainConfig) -> float:
        """The mean of the documents."""
        return self._data.train.num_tokens / max(self._data.train.num_sequences, 1)

    def open_dataset(self, config: TrainConfig, device: torch.device, split: str) -> SequenceDataset | None:
        """The sequences of a split. Those of Parquet files are prepared by processes, those of shards by a thread."""
        from gristmill.lm.data.sequences import SequenceDataset

        assert isinstance(config.batch_size, int)  # it is resolved
        source = self._source(split)
        if source is None:
            return None
        return SequenceDataset(
            source,
            max_sequence_length=config.max_sequence_length,
            batch_size=config.batch_size,
            seed=config.seed,
            use_dynamic_padding=config.use_dynamic_padding,
            num_buckets=config.num_buckets,
            device=device,
            num_workers=config.num_workers if self.uses_workers and split == "train" else 0,
            pin_memory=config.pin_memory,
            prefetch_factor=config.prefetch_factor,
        )

    def _source(self, split: str) -> SequenceSource | None:
        return {"train": self._data.train, "val": self._data.val}.get(split)

    def bits_per_byte(self, loss: float, split: str) -> float | None:
        """By the tokens and the bytes of the split; None where documents were cut short, and with vectors."""
        source = self._source(split)
        if source is None or not source.source_bytes:
            return None
        return loss / math.log(2) * source.num_tokens / source.source_bytes


def said_at_the_start(dataset: SequenceDataset, config: TrainConfig) -> list[str]:
    """How much padding there is, and whether batches are too small; an error where there are too few sequences."""
    assert config.global_batch_size is not None and isinstance(config.batch_size, int)  # it is resolved
    world_size = config.global_batch_size // (config.batch_size * config.gradient_accumulation_steps)
    said = [f"padding: {dataset.padding_waste(world_size):.1%} of what is computed on."]
    if config.batch_norm_mu and config.batch_size < BATCH_NORM_LEAST:
        said.append(
            f"batch_norm_mu: {config.batch_size} sequences at once are few to take a mean over. Pass batch_size >= "
            f"{BATCH_NORM_LEAST}, with fewer gradient_accumulation_steps."
        )
    return said


def _largest_id(shards: Shards) -> int:
    """The largest id of all splits. Reads every token: only for shards of another program, which do not state it."""
    largest = 0
    for name in shards.splits:
        tokens = shards.other_split(name).tokens
        for begin in range(0, len(tokens), CHUNK_TOKENS):
            largest = max(largest, int(tokens[begin : begin + CHUNK_TOKENS].max()))
    return largest


def bits_per_byte(loss: float, shards: Shards) -> float:
    """The bits that a byte of the texts costs: nats a token, over the bytes that a token of this split stands for."""
    return loss / math.log(2) * shards.num_tokens / max(shards.source_bytes, 1)
