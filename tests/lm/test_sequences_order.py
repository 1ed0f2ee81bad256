"""Buckets and order: little padding, every sequence at most once per epoch, for any number of ranks."""

import itertools
import time

import numpy as np
import pytest
import torch

import gristmill as gm
from gristmill.lm.data.batch import IGNORED
from gristmill.lm.data.sequences import choose_bounds
from lm.sequence_sources import Numbered, dataset, numbers, random_lengths, same

torch.set_num_threads(1)


def slots(lengths, bounds):
    return int(np.array(bounds)[np.searchsorted(bounds, lengths)].sum())


# Bounds


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("multiple", [1, 4])
def test_bounds_are_the_best_of_all_that_there_are(seed, multiple):
    lengths = np.random.default_rng(seed).choice([1, 2, 3, 7, 8, 9, 13, 14, 21, 26, 30], 30) + seed % 3
    longest = 33
    candidates = sorted({*range(multiple, longest, multiple), *([1, 2] if multiple == 4 else []), longest})
    for num_buckets in (1, 2, 3, 4):
        found = choose_bounds(lengths, num_buckets=num_buckets, multiple=multiple, longest=longest)
        possible = (c for c in itertools.combinations(candidates, num_buckets) if c[-1] >= lengths.max())
        assert found == sorted(set(found)) and set(found) <= set(candidates) and len(found) <= num_buckets
        assert slots(lengths, found) == min(slots(lengths, bounds) for bounds in possible)


def test_bounds_never_exceed_the_longest_that_a_model_takes():
    assert choose_bounds(np.array([97, 100]), longest=100) == [100]
    assert choose_bounds(np.array([96, 100]), longest=100) == [96, 100]


def test_fewer_lengths_than_buckets_have_a_bucket_each():
    assert choose_bounds(np.array([8, 8, 16]), longest=1000) == [8, 16]
    assert choose_bounds(np.array([5]), longest=1000) == [8]
    assert choose_bounds(np.array([1]), longest=1000) == [1]  # one vector per document
    assert choose_bounds(np.array([1, 2, 3, 4, 5]), longest=3000) == [1, 2, 4, 8]


def story_lengths(number, seed=0):
    """Lengths like those of the sample corpus: most stories of 230 to 350 tokens, some much shorter."""
    rng = np.random.default_rng(seed)
    short, long = rng.normal(160, 15, number), rng.normal(290, 30, number)
    return np.clip(np.where(rng.random(number) < 0.12, short, long), 20, 1000).astype(np.int64)


def test_eight_buckets_waste_at_most_a_twentieth_on_stories():
    source = Numbered(story_lengths(20_000))
    with dataset(source, batch_size=32, max_sequence_length=1000, num_buckets=8) as data:
        assert len(data.bounds) == 8
        assert data.padding_waste() <= 0.05
        assert data.padding_waste(world_size=4) <= 0.05
    with dataset(source, batch_size=32, max_sequence_length=1000, use_dynamic_padding=False) as data:
        assert data.bounds == [1000] and data.padding_waste() > 0.7


# The order


@pytest.mark.parametrize("kind", ["tokens", "vectors"])
def test_padding_is_never_a_target_and_all_else_is(kind):
    source = Numbered(random_lengths(50), kind)
    for data in (dataset(source), dataset(source, use_dynamic_padding=False)):
        for batch in [*(data.batch(step) for step in range(20)), *data.validation_batches()]:
            assert batch.inputs_BT.dtype == batch.targets_BT.dtype == torch.int64
            assert batch.inputs_BT.is_contiguous() and batch.targets_BT.is_contiguous()
            ids_BT = batch.inputs_BT if kind == "tokens" else batch.vectors_BTE[:, :, 0].long()
            for row, (ids, targets) in enumerate(zip(ids_BT, batch.targets_BT, strict=True)):
                length = source.lengths_N[ids[0] - 1] if ids[0] else 0
                assert (ids[:length] == ids[0]).all() and (ids[length:] == 0).all()
                assert (targets[length:] == IGNORED).all()
                assert torch.equal(targets[:length], ids[:length] if kind == "tokens" else torch.zeros(length).long())
                if kind == "vectors":
                    assert batch.vectors_BTE.dtype == torch.float32 and not batch.inputs_BT.any()
                    assert torch.equal(batch.vectors_BTE[row, :, 0], batch.vectors_BTE[row, :, 1])
        data.close()


@pytest.mark.parametrize("number", [3, 4, 5, 17, 100])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_an_epoch_has_every_sequence_at_most_once_and_all_but_a_unit(number, batch_size):
    data = dataset(Numbered(random_lengths(number)), batch_size=batch_size)
    num_steps = int(data.steps_per_epoch())
    assert num_steps == number // batch_size
    for epoch in range(4):
        steps = range(epoch * num_steps, (epoch + 1) * num_steps)
        seen = [i for step in steps for i in numbers(data.batch(step))]
        assert len(seen) == len(set(seen)) == num_steps * batch_size >= number - batch_size + 1
    data.close()


def test_each_sequence_is_left_out_as_often_as_any_other_whatever_its_length():
    lengths = np.array([5] * 7 + [38] * 4)
    data = dataset(Numbered(lengths), batch_size=3)
    num_epochs = 600
    counts = np.zeros(11)
    for place in range(3 * num_epochs):
        counts[data._order.unit(place, 3).sequences_U] += 1
    left_out = num_epochs - counts
    assert left_out.sum() == 2 * num_epochs
    # Each is left out with probability 2/11: 5 sigma are 47.
    assert np.abs(left_out - num_epochs * 2 / 11).max() < 47


def test_a_batch_goes_to_the_width_of_its_longest_bucket_and_no_further():
    lengths = random_lengths(1000)
    data = dataset(Numbered(lengths), batch_size=4)
    num_mixed = 0
    for step in range(250):
        batch = data.batch(step)
        widths = [min(b for b in data.bounds if b >= lengths[i]) for i in numbers(batch)]
        assert batch.inputs_BT.shape == (4, max(widths))
        num_mixed += len(set(widths)) > 1
    assert num_mixed < len(data.bounds)  # only where one bucket ends and the next begins
    data.close()


def test_another_seed_and_another_epoch_are_another_order():
    orders = {tuple(numbers(dataset(seed=seed, batch_size=25).batch(step))) for seed in range(10) for step in (0, 4)}
    assert len(orders) == 20


def test_batches_of_all_widths_are_mixed_in_time():
    data = dataset(Numbered(random_lengths(4000)), batch_size=4)
    widths = [data._order.unit(place, 4).width for place in range(1000)]
    halves = [np.mean(widths[:500]), np.mean(widths[500:])]
    assert abs(halves[0] - halves[1]) < 3
    assert len({*widths[:50]}) == len(data.bounds)


def test_a_batch_is_the_same_whenever_it_is_asked_for():
    forward, backward = dataset(), dataset()
    batches = [forward.batch(step) for step in range(40)]
    assert all(same(backward.batch(step), batches[step]) for step in reversed(range(40)))
    assert all(same(forward.batch(step), batches[step]) for step in (3, 4, 5, 3, 39, 0))
    forward.close()
    backward.close()


def test_two_ranks_with_half_the_batch_have_the_rows_of_one_rank_in_the_same_width():
    one, two = dataset(batch_size=6), dataset(batch_size=3)
    for step in range(40):
        whole = one.batch(step)
        halves = [two.batch(step, rank=rank, world_size=2) for rank in (0, 1)]
        assert torch.equal(whole.inputs_BT, torch.cat([half.inputs_BT for half in halves]))
        assert torch.equal(whole.targets_BT, torch.cat([half.targets_BT for half in halves]))
        assert one.tokens_in_step(step) == two.tokens_in_step(step, world_size=2)
    assert one.padding_waste() == two.padding_waste(world_size=2)
    assert one.steps_per_epoch() == two.steps_per_epoch(world_size=2)
    one.close()
    two.close()


def test_micro_steps_go_through_the_same_batches():
    one, three = dataset(), dataset()
    for step in range(10):
        for i in range(3):
            assert same(three.batch(step, micro_step=i, num_micro_steps=3), one.batch(3 * step + i))
        assert three.tokens_in_step(step, num_micro_steps=3) == tuple(
            sum(part) for part in zip(*(one.tokens_in_step(3 * step + i) for i in range(3)), strict=True)
        )
    assert three.steps_per_epoch(num_micro_steps=3) == one.steps_per_epoch() / 3
    one.close()
    three.close()


def test_tokens_and_padding_are_counted_without_reading():
    data = dataset(batch_size=7)
    batches = [data.batch(step) for step in range(14)]  # an epoch of 100 sequences
    counted = [(int(batch.num_targets), batch.num_tokens) for batch in batches]
    assert [data.tokens_in_step(step) for step in range(14)] == counted
    tokens, all_slots = map(sum, zip(*counted, strict=True))
    assert data.padding_waste() == 1 - tokens / all_slots
    data.close()


def test_ten_million_documents_are_planned_quickly():
    source = Numbered(story_lengths(10_000_000))
    began = time.perf_counter()
    data = dataset(source, batch_size=64, max_sequence_length=1000)
    data.padding_waste()
    assert data.tokens_in_step(10**6)[0] > 0  # in the seventh epoch
    assert time.perf_counter() - began < 10  # a second on a free core


# Validation


@pytest.mark.parametrize("num_batches", [None, 4, 1])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_share_a_validation_with_every_sequence_of_it_once(num_batches, world_size):
    data = dataset(batch_size=3)
    wanted = 100 if num_batches is None else 3 * num_batches
    expected = sorted(i * 100 // wanted for i in range(wanted))
    ranks = [list(data.validation_batches(num_batches, rank=r, world_size=world_size)) for r in range(world_size)]
    assert len({len(batches) for batches in ranks}) == 1
    for batches in zip(*ranks, strict=True):
        assert len({batch.inputs_BT.shape for batch in batches}) == 1
        assert batches[0].inputs_BT.shape[0] == 3 and batches[0].inputs_BT.shape[1] in data.bounds
    seen = [i for batches in zip(*ranks, strict=True) for batch in batches for i in numbers(batch)]
    assert sorted(seen) == expected
    if world_size == 1:
        assert len(ranks[0]) == (data.num_val_batches if num_batches is None else num_batches)


def test_validation_is_the_same_for_every_seed_and_does_not_disturb_training():
    data, alone = dataset(seed=1), dataset(seed=2)
    expected = [numbers(batch) for batch in alone.validation_batches(5)]
    assert [numbers(batch) for batch in data.validation_batches(5)] == expected
    undisturbed = dataset(seed=1)
    for step in range(5):
        assert same(data.batch(step), undisturbed.batch(step))
        assert [numbers(batch) for batch in data.validation_batches(5)] == expected
    data.close()
    undisturbed.close()


def test_fewer_sequences_than_a_batch_can_be_validated_on():
    batches = list(dataset(Numbered([5, 9]), batch_size=8).validation_batches())
    assert len(batches) == 1 and batches[0].inputs_BT.shape == (8, 16)
    assert (batches[0].targets_BT[2:] == IGNORED).all() and batches[0].num_targets == 14


# Bad input


def test_fewer_sequences_than_one_unit_are_an_error():
    data = dataset(Numbered([5, 9, 4]), batch_size=2)
    data.batch(0)
    for call in (data.batch, data.tokens_in_step):
        with pytest.raises(gm.TrainingError, match=r"there are 3 sequences, but one micro-batch .* needs 4\. Pass"):
            call(0, world_size=2)
    with pytest.raises(gm.TrainingError, match="smaller batch_size"):
        data.steps_per_epoch(world_size=2)
    data.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"max_sequence_length": 0}, "max_sequence_length must be >= 1, got 0"),
        ({"max_sequence_length": 10}, "max_sequence_length=10, but a sequence has 40 tokens"),
        ({"num_buckets": 0}, "num_buckets must be >= 1, got 0"),
        ({"num_workers": -1}, "num_workers must be >= 0, got -1"),
        ({"prefetch_factor": 0}, "prefetch_factor must be >= 1, got 0"),
        ({"seed": -1}, "seed must be >= 0 and < 2[*]{2}6[34], got -1"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(gm.OptionError, match=message):
        dataset(**options)


def test_no_sequences_at_all():
    with pytest.raises(gm.TrainingError, match="there are no sequences"):
        dataset(Numbered([]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"step": -1}, "step must be >= 0, got -1"),
        ({"step": 0, "rank": 2, "world_size": 2}, "rank must be >= 0 and < world_size=2, got 2"),
        ({"step": 0, "micro_step": 1}, "micro_step must be >= 0 and < num_micro_steps=1, got 1"),
    ],
)
def test_steps_and_ranks_that_do_not_exist(call, message):
    with pytest.raises(gm.OptionError, match=message):
        dataset().batch(**call)
