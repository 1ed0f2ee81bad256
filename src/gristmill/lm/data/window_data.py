"""WindowData: token shards, read in windows across all documents."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gristmill.errors import OptionError
from gristmill.lm.data.identity import shards_identity
from gristmill.lm.data.token_dataset import TokenDataset
from gristmill.lm.data.training_data import NO_VALIDATION, Dataset, check_data, check_is_no_run, is_shards
from gristmill.shards import Shards

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.data.options import WindowOptions

__all__ = ["WindowData", "open_windows"]

CHUNK_TOKENS = 1 << 20


def open_windows(data: Any, options: WindowOptions, *, split: str = "train") -> WindowData:
    """Return the shards at `data`, a path or `Shards`; `TypeError` for anything else."""
    check_data(data)
    check_is_no_run(data)
    if isinstance(data, Shards):
        return WindowData(data, options)
    if not is_shards(data) and (_has_parquet(Path(data)) or str(data).endswith(".parquet")):
        raise OptionError(
            f"{data}: these are Parquet files, but this model is trained on token shards. Make shards with "
            f"encode_corpus(), or choose a model that takes Parquet files."
        )
    return WindowData(Shards(data, split=split), options)


def _has_parquet(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.parquet"))


class WindowData:
    """Shards, read in windows of `context_length` tokens across all documents."""

    noun = "shards"
    embedding_dim: int | None = None
    uses_workers = False
    even_batches = True
    no_validation = NO_VALIDATION

    def __init__(self, shards: Shards, options: WindowOptions) -> None:
        """Use the split that `shards` were opened for, and the split "val" of the same folder."""
        self._shards, self._options = shards, options
        self.num_tokens = shards.num_tokens
        self.identity = shards_identity(shards)
        self.messages: list[str] = []

    @cached_property
    def vocab_size(self) -> int:
        """That of the tokenizer, or the largest id + 1 for shards of other programs opened without a tokenizer."""
        return self._shards.vocab_size or _largest_id(self._shards) + 1

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the shards; None for shards of other programs opened without one."""
        return None if self._shards.tokenizer_fingerprint is None else self._shards.tokenizer

    @property
    def tokens_per_sequence(self) -> float:
        """Length of a window."""
        return self._options.context_length

    def open_dataset(
        self, split: str, *, batch_size: int, seed: int, device: torch.device, vocab_size: int | None
    ) -> TokenDataset | None:
        """Return the windows of a split."""
        shards = self.of_split(split)
        if shards is None:
            return None
        return TokenDataset(
            shards,
            context_length=self._options.context_length,
            batch_size=batch_size,
            seed=seed,
            vocab_size=vocab_size,
            document_mask=self._options.document_mask,
            shift_windows=self._options.shift_windows,
            device=device,
        )

    def start_messages(self, dataset: Dataset, *, world_size: int) -> list[str]:
        """Return nothing: windows have no padding."""
        return []

    def bits_per_byte(self, loss: float, split: str) -> float | None:
        """Convert by the tokens and bytes of the split; None for shards of other programs."""
        shards = self.of_split(split)
        assert shards is not None  # there is a loss on it
        if not shards.has_manifest:
            return None
        return loss / math.log(2) * shards.num_tokens / max(shards.source_bytes, 1)

    @property
    def shards(self) -> Shards:
        """The shards, of the split that they were opened for."""
        return self._shards

    def of_split(self, split: str) -> Shards | None:
        """Return the shards of a split; None if there is no such split."""
        if split == self._shards.split:
            return self._shards
        if split not in self._shards.splits:
            return None
        return self._shards.other_split(split)


def _largest_id(shards: Shards) -> int:
    """Return the largest id of all splits.

    Reads every token, so it is only for shards that do not state a vocabulary.
    """
    largest = 0
    for name in shards.splits:
        tokens = shards.other_split(name).tokens
        for begin in range(0, len(tokens), CHUNK_TOKENS):
            largest = max(largest, int(tokens[begin : begin + CHUNK_TOKENS].max()))
    return largest
