"""Numbered test sequences for the tests of the sequence data."""

from __future__ import annotations

import numpy as np
import torch

from gristmill.lm.data.sequences import SequenceDataset

MAX_LENGTH = 40


class Numbered:
    """Sequence i is `lengths[i]` times the id i + 1, or the vector (i + 1, i + 1)."""

    source_bytes = None

    def __init__(self, lengths, kind="tokens"):
        self.lengths_N = np.asarray(lengths, np.int64)
        self.kind, self.embedding_dim = kind, 2 if kind == "vectors" else None

    @property
    def num_sequences(self):
        return len(self.lengths_N)

    @property
    def num_tokens(self):
        return int(self.lengths_N.sum())

    def read(self, index):
        if self.kind == "tokens":
            return np.full(self.lengths_N[index], index + 1, np.uint32)
        return np.full((self.lengths_N[index], 2), index + 1, np.float32)


def random_lengths(number, seed=0, longest=MAX_LENGTH):
    return np.random.default_rng(seed).integers(1, longest + 1, number)


def dataset(source=None, *, batch_size=3, seed=1, use_dynamic_padding=True, max_sequence_length=MAX_LENGTH, **options):
    source = Numbered(random_lengths(100)) if source is None else source
    return SequenceDataset(
        source,
        max_sequence_length=max_sequence_length,
        batch_size=batch_size,
        seed=seed,
        use_dynamic_padding=use_dynamic_padding,
        **options,
    )


def numbers(batch):
    """The numbers of the `Numbered` sequences of a batch; padding rows are ignored."""
    return [row[0].item() - 1 for row in batch.inputs_BT if row[0]]


def same(one, other):
    pairs = [(vars(one)[name], vars(other)[name]) for name in vars(one)]
    return all(a is b is None or torch.equal(a, b) for a, b in pairs)
