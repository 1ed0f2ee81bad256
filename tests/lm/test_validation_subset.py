"""The validation subset: the same sequences, and so the same loss, for every batch size and number of devices."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gristmill as gm
from gristmill.lm.data.batch import IGNORED
from gristmill.lm.data.token_dataset import TokenDataset
from gristmill.lm.training.losses import LossModule, mean_loss, num_val_sequences
from lm import sequence_sources
from lm.sequence_sources import Numbered, random_lengths

torch.set_num_threads(1)

NUM_SEQUENCES = 100
SUBSETS = [1, 7, 24, 61, NUM_SEQUENCES]


class Bigram(torch.nn.Module):
    """Predicts each target from the input at its position: the loss depends on every token, without randomness."""

    def __init__(self, vocab_size=NUM_SEQUENCES * 4 + 1):
        super().__init__()
        torch.manual_seed(0)
        self.logits_VV = torch.nn.Parameter(torch.randn(vocab_size, vocab_size))

    def loss(self, batch, schedule):
        logits_BTV = self.logits_VV[batch.inputs_BT]
        losses_BT = F.cross_entropy(logits_BTV.flatten(0, 1), batch.targets_BT.flatten(), ignore_index=IGNORED)
        return losses_BT, {}


def windows(batch_size):
    tokens = np.random.default_rng(0).integers(0, NUM_SEQUENCES * 4, NUM_SEQUENCES * 4 + 1).astype(np.uint16)
    return TokenDataset(tokens, context_length=4, batch_size=batch_size, seed=0)


def documents(batch_size):
    return sequence_sources.dataset(Numbered(random_lengths(NUM_SEQUENCES)), batch_size=batch_size)


def padded_documents(batch_size):
    source = Numbered(random_lengths(NUM_SEQUENCES))
    return sequence_sources.dataset(source, batch_size=batch_size, use_dynamic_padding=False)


KINDS = [windows, documents, padded_documents]


def rows_of(data, rank=0, world_size=1, **subset):
    """Return the sequences that count, as tuples of inputs and targets."""
    found = []
    for batch in data.validation_batches(rank=rank, world_size=world_size, **subset):
        assert batch.inputs_BT.shape[0] == data.batch_size
        for inputs_T, targets_T in zip(batch.inputs_BT, batch.targets_BT, strict=True):
            counted_T = targets_T != IGNORED
            if counted_T.any():
                found.append((*inputs_T[counted_T].tolist(), *targets_T[counted_T].tolist()))
    return found


def loss_of(data, world_size, **subset):
    """Return the loss and tokens of a validation, with the sums of all ranks added as several devices do."""
    module, sums = LossModule(Bigram()), []

    def add(total):
        sums.append(total)
        return torch.stack(sums).sum(0)

    for rank in range(world_size):
        batches = data.validation_batches(rank=rank, world_size=world_size, **subset)
        found = mean_loss(module, batches, reduce_sum=add)
    return found


@pytest.mark.parametrize("num_sequences", SUBSETS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_subset_of_so_many_sequences_is_the_same_for_every_batch_size_and_world_size(kind, num_sequences):
    expected = sorted(rows_of(kind(1), num_sequences=num_sequences))
    assert len(expected) == num_sequences
    for batch_size in (2, 4, 8):
        for world_size in (1, 2):
            rows = [
                row
                for rank in range(world_size)
                for row in rows_of(kind(batch_size), rank, world_size, num_sequences=num_sequences)
            ]
            assert sorted(rows) == expected


@pytest.mark.parametrize("num_sequences", SUBSETS)
@pytest.mark.parametrize("kind", KINDS)
def test_another_batch_size_gives_the_same_validation_loss(kind, num_sequences):
    expected = loss_of(kind(1), 1, num_sequences=num_sequences)
    for batch_size in (2, 4, 8):
        for world_size in (1, 2):
            found = loss_of(kind(batch_size), world_size, num_sequences=num_sequences)
            assert found.num_tokens == expected.num_tokens
            assert found.loss == pytest.approx(expected.loss, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_so_many_sequences_of_the_batch_size(kind):
    for batch_size in (2, 8):
        expected = rows_of(kind(batch_size), num_sequences=3 * batch_size)
        assert rows_of(kind(batch_size), num_batches=3) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_subset_larger_than_the_split_is_the_split(kind):
    assert kind(4).num_sequences == NUM_SEQUENCES
    assert rows_of(kind(4), num_sequences=10_000) == rows_of(kind(4))


@pytest.mark.parametrize("kind", KINDS)
def test_bad_sizes_of_a_subset_are_named(kind):
    with pytest.raises(gm.OptionError, match="num_sequences must be >= 1, got 0"):
        next(kind(4).validation_batches(num_sequences=0))
    with pytest.raises(gm.OptionError, match="num_batches=2 and num_sequences=3 both give the size of the subset"):
        next(kind(4).validation_batches(2, num_sequences=3))


@pytest.mark.parametrize(
    ("limit", "batch_size", "expected"),
    [
        (None, 4, 1000),
        (0, 4, 1000),
        (32, 4, 128),
        (32, 8, 256),
        (500, 8, 1000),
        (1, 4, 4),
        (0.1, 4, 100),
        (0.1, 8, 100),
        (0.0001, 8, 1),
        (1.0, 8, 1000),
    ],
)
def test_limit_val_batches_is_resolved_into_a_number_of_sequences(limit, batch_size, expected):
    assert num_val_sequences(limit, total=1000, batch_size=batch_size) == expected
