"""DocumentData: documents of token shards or Parquet files, one sequence per document."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from gristmill.errors import OptionError
from gristmill.lm.data.options import DocumentOptions
from gristmill.lm.data.sequences import SequenceData, SequenceDataset, SequenceSource, open_sequences
from gristmill.lm.data.training_data import NO_VALIDATION, Dataset, check_data, check_is_no_run
from gristmill.shards import Shards

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer

__all__ = ["DocumentData", "open_documents"]


def open_documents(data: Any, options: DocumentOptions, *, tokenizer: Any = None, progress: Any = None) -> DocumentData:
    """Return the documents as sequences. The choice of validation documents does not depend on the seed of the run."""
    check_data(data)
    check_is_no_run(data)
    if isinstance(data, Shards) and data.has_manifest:
        data = data.paths[0].parent  # the folder, which has all splits
    opened = open_sequences(
        data,
        max_sequence_length=options.max_sequence_length,
        tokenizer=options.tokenizer if tokenizer is None else tokenizer,
        text_column=options.text_column,
        tokens_column=options.tokens_column,
        embedding_columns=options.embedding_columns,
        val_fraction=options.val_fraction,
        cache_dir=options.cache_dir,
        progress=progress,
    )
    if not opened.from_parquet and options.val_fraction != DocumentOptions.val_fraction:
        raise OptionError(
            f"val_fraction={options.val_fraction} applies to Parquet files, but the data are shards, which were split "
            f"when they were encoded. Leave it out, or encode them again with another val_fraction."
        )
    return DocumentData(opened, options)


class DocumentData:
    """Documents of shards or Parquet files, one sequence per document."""

    noun = "data"
    even_batches = False  # micro-batches of different buckets have very different sizes

    def __init__(self, data: SequenceData, options: DocumentOptions) -> None:
        """Wrap the result of `open_sequences`."""
        self._data, self._options = data, options
        self.num_tokens = data.train.num_tokens
        self.vocab_size = data.vocab_size
        self.embedding_dim = data.embedding_dim
        self.tokenizer: Tokenizer | None = data.tokenizer
        self.identity = data.identity
        self.uses_workers = data.from_parquet
        self.messages = list(data.messages)
        self.no_validation = NO_VALIDATION
        if data.from_parquet:
            self.no_validation = "no document was chosen for validation. Pass a larger val_fraction."

    @property
    def tokens_per_sequence(self) -> float:
        """Mean number of tokens per document."""
        return self._data.train.num_tokens / max(self._data.train.num_sequences, 1)

    def open_dataset(
        self, split: str, *, batch_size: int, seed: int, device: torch.device, vocab_size: int | None
    ) -> SequenceDataset | None:
        """Return the sequences of a split. Processes prepare those of Parquet files, a thread those of shards."""
        source = self._source(split)
        if source is None:
            return None
        return SequenceDataset(
            source,
            max_sequence_length=self._options.max_sequence_length,
            batch_size=batch_size,
            seed=seed,
            vocab_size=vocab_size,
            use_dynamic_padding=self._options.use_dynamic_padding,
            num_buckets=self._options.num_buckets,
            device=device,
            num_workers=self._options.num_workers if self.uses_workers and split == "train" else 0,
            pin_memory=self._options.pin_memory,
            prefetch_factor=self._options.prefetch_factor,
        )

    def start_messages(self, dataset: Dataset, *, world_size: int) -> list[str]:
        """Return the share of padding; raise an error if there are too few sequences."""
        assert isinstance(dataset, SequenceDataset)
        return [f"padding: {dataset.padding_waste(world_size):.1%} of the positions in a batch."]

    def _source(self, split: str) -> SequenceSource | None:
        return {"train": self._data.train, "val": self._data.val}.get(split)

    def bits_per_byte(self, loss: float, split: str) -> float | None:
        """Convert by the tokens and bytes of the split; None for truncated documents and for vectors."""
        source = self._source(split)
        if source is None or not source.source_bytes:
            return None
        return loss / math.log(2) * source.num_tokens / source.source_bytes
