"""MixedData: several folders of shards, read in windows and mixed in fixed shares."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gristmill.errors import OptionError, TrainingError
from gristmill.lm.data.batch import Batch
from gristmill.lm.data.identity import mixture_identity
from gristmill.lm.data.mixture import Mixture
from gristmill.lm.data.token_dataset import TokenDataset, check_enough_tokens
from gristmill.lm.data.training_data import NO_VALIDATION, Dataset
from gristmill.lm.data.window_data import WindowData, open_windows
from gristmill.lm.data.window_order import PERIOD, shares_of
from gristmill.shards import Shards
from gristmill.shards.tokenizer_changes import tokenizer_changes

if TYPE_CHECKING:
    from gristmill.encode.tokenizer import Tokenizer
    from gristmill.lm.data.options import WindowOptions

__all__ = ["MixedData", "MixedValidation", "open_mixture"]

# Text repeated up to about four times is nearly as useful as new text; more repetitions help less and less.
MANY_EPOCHS = 4


def open_mixture(mixture: Mixture, options: WindowOptions, *, split: str = "train") -> WindowData | MixedData:
    """Return the shards of all sources, which must have the same tokenizer."""
    opened = [open_windows(source, options, split=split) for source in mixture.sources]
    if len(opened) == 1:
        return opened[0]
    return MixedData(dict(zip(mixture.names, opened, strict=True)), mixture.weights, options)


class MixedData:
    """Shards of several sources. An epoch has as many windows as all sources together."""

    noun = "shards"
    embedding_dim: int | None = None
    uses_workers = False
    even_batches = True
    no_validation = NO_VALIDATION

    def __init__(
        self, sources: Mapping[str, WindowData], weights: tuple[float, ...] | None, options: WindowOptions
    ) -> None:
        """Check the sources.

        `weights` are their shares in the sequences of the run; None: in proportion to their windows.
        """
        self._sources, self._options = dict(sources), options
        _check_one_tokenizer(self._sources)
        for name, source in self._sources.items():
            _check_size(name, source.shards, options.context_length)
        self.num_tokens = sum(source.num_tokens for source in self._sources.values())
        shares = shares_of(weights or list(self._num_windows().values()))
        self.shares = dict(zip(self._sources, shares, strict=True))  # out of 1,000,000
        identities = {name: source.identity for name, source in self._sources.items()}
        self.identity: dict[str, Any] = mixture_identity(identities, self.shares)
        self.messages: list[str] = []

    def _num_windows(self) -> dict[str, int]:
        length = self._options.context_length
        return {name: (source.num_tokens - 1) // length for name, source in self._sources.items()}

    @property
    def _first(self) -> WindowData:
        return next(iter(self._sources.values()))

    @property
    def vocab_size(self) -> int:
        """That of the tokenizer, or the largest id + 1 for shards of other programs opened without a tokenizer."""
        return max(source.vocab_size for source in self._sources.values())

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of all sources."""
        return self._first.tokenizer

    @property
    def tokens_per_sequence(self) -> float:
        """Length of a window."""
        return self._options.context_length

    def open_dataset(
        self, split: str, *, batch_size: int, seed: int, device: torch.device, vocab_size: int | None
    ) -> TokenDataset | None:
        """Return the mixed windows of a split; for validation, one source after another."""
        options: dict[str, Any] = {
            "context_length": self._options.context_length,
            "batch_size": batch_size,
            "seed": seed,
            "vocab_size": vocab_size,
            "document_mask": self._options.document_mask,
            "shift_windows": self._options.shift_windows,
            "device": device,
        }
        if split == self._first.shards.split:
            shards = [source.shards for source in self._sources.values()]
            return TokenDataset(shards, weights=list(self.shares.values()), **options)
        parts = self._of_split(split)
        return MixedValidation(parts, self.shares, **options) if parts else None

    def _of_split(self, split: str) -> dict[str, Shards]:
        """Return the shards of a split, for the sources with at least one window there."""
        found = {name: source.of_split(split) for name, source in self._sources.items()}
        length = self._options.context_length
        return {name: shards for name, shards in found.items() if shards is not None and shards.num_tokens > length}

    def start_messages(self, dataset: Dataset, *, world_size: int) -> list[str]:
        """Return a message for each source without validation data, if others have some."""
        parts = self._of_split("val")
        missing = [name for name in self._sources if name not in parts] if parts else []
        return [
            f"no validation on {name}: it has no validation split of more than {self._options.context_length} tokens. "
            f"The validation loss is that of the other sources."
            for name in missing
        ]

    def repetitions(self, num_sequences: int) -> dict[str, float]:
        """Return how many times a run of `num_sequences` reads each source."""
        windows = self._num_windows()
        return {name: num_sequences * share / PERIOD / windows[name] for name, share in self.shares.items()}

    def length_messages(self, num_sequences: int) -> list[str]:
        """Return messages about a run of `num_sequences`: the mixture, and sources that are repeated often."""
        epochs = self.repetitions(num_sequences)
        parts = [f"{name} {share / PERIOD:.1%} ({epochs[name]:.3g} epochs)" for name, share in self.shares.items()]
        often = [
            f"the run reads {name} {number:.1f} times. More than {MANY_EPOCHS} repetitions help less each time: pass a "
            f"smaller weight, add text, or shorten the run."
            for name, number in epochs.items()
            if number > MANY_EPOCHS
        ]
        return [f"mixture: {', '.join(parts)}.", *often]

    def bits_per_byte(self, loss: float, split: str) -> float | None:
        """Convert by the tokens and bytes of the mixture; None if another program made some of the shards."""
        parts = {name: source.shards for name, source in self._sources.items()}
        if split != self._first.shards.split:
            parts = self._of_split(split)
        if not all(shards.has_manifest for shards in parts.values()):
            return None
        total = sum(self.shares[name] for name in parts)
        bytes_per_token = sum(
            self.shares[name] / total * shards.source_bytes / shards.num_tokens for name, shards in parts.items()
        )
        return loss / math.log(2) / bytes_per_token if bytes_per_token else None


class MixedValidation(TokenDataset):
    """The validation splits of the sources of a mixture, one after another."""

    def __init__(self, shards: Mapping[str, Shards], shares: Mapping[str, int], **options: Any) -> None:
        """`shares` are those of the mixture; some of its sources may be missing in `shards`."""
        weights = [shares[name] for name in shards]
        super().__init__(list(shards.values()), weights=weights, **options)
        self.parts = {name: TokenDataset(each, **options) for name, each in shards.items()}
        self.weights = {name: weight / sum(weights) for name, weight in zip(shards, weights, strict=True)}

    def divided(self, num_sequences: int | None) -> dict[str, int]:
        """Return how many of `num_sequences` each source gives: its share, at least one, at most all it has."""
        if num_sequences is None or num_sequences >= self.num_sequences:
            return {name: part.num_windows for name, part in self.parts.items()}
        wanted = {name: max(1, round(num_sequences * self.weights[name])) for name in self.parts}
        return {name: min(number, self.parts[name].num_windows) for name, number in wanted.items()}

    def validation_batches(
        self, num_batches: int | None = None, *, num_sequences: int | None = None, rank: int = 0, world_size: int = 1
    ) -> Iterator[Batch]:
        """Return the batches of each source, one after another. No batch mixes two sources."""
        wanted = num_sequences if num_batches is None else num_batches * self.batch_size
        return chain.from_iterable(
            self.parts[name].validation_batches(num_sequences=number, rank=rank, world_size=world_size)
            for name, number in self.divided(wanted).items()
        )

    def close(self) -> None:
        """Stop prefetching threads."""
        super().close()
        for part in self.parts.values():
            part.close()


def _check_size(name: str, shards: Shards, context_length: int) -> None:
    try:
        check_enough_tokens(shards.num_tokens, context_length)
    except TrainingError as error:
        raise TrainingError(f"{name}: {error}") from None


def _check_one_tokenizer(sources: Mapping[str, WindowData]) -> None:
    """Raise `OptionError` if two sources have different tokenizers, with the differences."""
    first_name, first = next(iter(sources.items()))
    fingerprint = first.identity["tokenizer_fingerprint"]
    for name, source in sources.items():
        other = source.identity["tokenizer_fingerprint"]
        if other == fingerprint:
            continue
        if first.tokenizer is None or source.tokenizer is None:
            unknown = first_name if first.tokenizer is None else name
            raise OptionError(
                f"{first_name} and {name} cannot be mixed: {unknown} does not state its tokenizer. Open it with "
                f"Shards(folder, tokenizer=…), or encode its text with the tokenizer of the other."
            )
        changes = ", ".join(tokenizer_changes(first.tokenizer, source.tokenizer))
        there = Path(first.shards.paths[0].parent) / "tokenizer.json"
        raise OptionError(
            f"{first_name} and {name} cannot be mixed: their tokenizers differ (from {first_name} to {name}: "
            f"{changes}). Encode the text of {name} with {there}."
        )
