"""TokenDataset: every window once per epoch, for any division among ranks and any storage of the tokens."""

import itertools
import os
import pickle
import threading

import numpy as np
import pytest
import torch

import gristmill as gm
from gristmill.lm.data.batch import IGNORED, Batch
from gristmill.lm.data.permutation import permuted
from gristmill.lm.data.read_ahead import ReadAhead
from gristmill.lm.data.token_dataset import TokenDataset, validation_shards
from scripts import run_script
from shards.builder import build_folder, train

TEXTS = ["low lower", "", "newest widest newer", "x", "the lowest low low low lower", "é wide", "wider", "low"] * 3


def numbered(num_tokens, dtype=np.uint16):
    """Tokens whose ids encode their positions."""
    return np.arange(num_tokens, dtype=dtype)


def dataset(tokens=None, *, context_length=4, batch_size=3, seed=1, **options):
    tokens = numbered(101) if tokens is None else tokens
    return TokenDataset(tokens, context_length=context_length, batch_size=batch_size, seed=seed, **options)


def windows(batch, context_length=4):
    """The numbers of the windows of a batch over `numbered` tokens."""
    return (batch.inputs_BT[:, 0] // context_length).tolist()


def same(one: Batch, other: Batch):
    tensors = [(batch.inputs_BT, batch.targets_BT, batch.document_ids_BT) for batch in (one, other)]
    return all(a is b is None or torch.equal(a, b) for a, b in zip(*tensors, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "shards"
    build_folder(path, TEXTS, shard_tokens=7, tokenizer=train(), val_texts=["low wide lower newest"] * 4)
    return path


# The order


@pytest.mark.parametrize("size", [*range(1, 70), 1000, 1023, 1024, 1025, 99_991])
def test_the_permutation_gives_every_item_once(size):
    for seed, epoch in [(0, 0), (0, 1), (2**64 - 1, 12345)]:
        items = permuted(np.arange(size), size, seed=seed, epoch=epoch)
        assert np.array_equal(np.sort(items), np.arange(size))


def test_the_permutation_of_a_large_size_has_no_table_and_no_repeats():
    size = 10**12 + 39
    items = permuted(np.arange(size - 10_000, size), size, seed=3, epoch=0)
    assert len(np.unique(items)) == 10_000
    assert items.min() >= 0 and items.max() < size
    # Uniform over the range: the mean of 10,000 uniform numbers is within 5 sigma of the middle.
    assert abs(items.mean() / size - 0.5) < 5 / np.sqrt(12 * 10_000)


def test_each_item_is_as_likely_as_any_other_at_each_position():
    size, num_seeds = 7, 7000
    found = np.array([permuted(np.arange(size), size, seed=seed, epoch=0) for seed in range(num_seeds)])
    counts = np.array([np.bincount(found[:, position], minlength=size) for position in range(size)])
    chi_squared = ((counts - num_seeds / size) ** 2 / (num_seeds / size)).sum()
    assert chi_squared < 80  # 36 degrees of freedom: 1 in 30,000 is above


def test_neighbours_do_not_stay_neighbours():
    items = permuted(np.arange(100_000), 100_000, seed=0, epoch=0)
    assert abs(np.corrcoef(items[:-1], items[1:])[0, 1]) < 0.02
    assert np.count_nonzero(np.diff(items) == 1) < 20
    assert abs(np.corrcoef(items, np.arange(100_000))[0, 1]) < 0.02


@pytest.mark.parametrize(("world_size", "num_micro_steps", "batch_size"), [(1, 1, 5), (1, 4, 1), (2, 3, 2), (5, 1, 1)])
def test_an_epoch_gives_every_window_once_over_ranks_and_micro_steps(world_size, num_micro_steps, batch_size):
    data = dataset(numbered(4 * 60 + 1), batch_size=batch_size)
    per_step = world_size * num_micro_steps * batch_size
    assert data.num_windows == 60 and 60 % per_step == 0
    for epoch in (0, 1):
        found = [
            window
            for step in range(epoch * 60 // per_step, (epoch + 1) * 60 // per_step)
            for micro_step, rank in itertools.product(range(num_micro_steps), range(world_size))
            for window in windows(
                data.batch(
                    step, rank=rank, world_size=world_size, micro_step=micro_step, num_micro_steps=num_micro_steps
                )
            )
        ]
        assert sorted(found) == list(range(60))


def test_the_last_step_of_an_epoch_is_filled_from_the_next_one():
    data = dataset(batch_size=4)  # 25 windows
    stream = [window for step in range(25) for window in windows(data.batch(step))]
    epochs = [stream[begin : begin + 25] for begin in range(0, 100, 25)]
    assert all(sorted(epoch) == list(range(25)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 4


def test_fewer_windows_than_a_batch_gives_whole_epochs_in_one_batch():
    data = dataset(numbered(9), batch_size=6)
    assert data.num_windows == 2
    assert [sorted(windows(data.batch(0))[i : i + 2]) for i in (0, 2, 4)] == [[0, 1]] * 3


def test_two_ranks_with_half_the_batch_see_what_one_rank_sees():
    one, two = dataset(batch_size=6), dataset(batch_size=3)
    for step in range(9):
        halves = [two.batch(step, rank=rank, world_size=2) for rank in (0, 1)]
        assert torch.equal(one.batch(step).inputs_BT, torch.cat([half.inputs_BT for half in halves]))
        thirds = [dataset(batch_size=2).batch(step, micro_step=i, num_micro_steps=3) for i in range(3)]
        assert torch.equal(one.batch(step).targets_BT, torch.cat([third.targets_BT for third in thirds]))


def test_a_batch_is_the_same_whenever_it_is_asked_for():
    forward, backward = dataset(), dataset(prefetch=False)
    batches = [forward.batch(step) for step in range(12)]
    assert all(same(backward.batch(step), batches[step]) for step in reversed(range(12)))
    assert all(same(forward.batch(step), batches[step]) for step in (3, 4, 5, 3, 11, 0))


@pytest.mark.parametrize(("world_size", "num_micro_steps"), [(1, 1), (3, 1), (2, 2)])
@pytest.mark.parametrize("num_windows", [2, 25, 1000])
def test_batches_computed_many_at_once_are_those_of_the_plain_order(num_windows, world_size, num_micro_steps):
    data = dataset(numbered(4 * num_windows + 1), prefetch=False)
    for step in (0, 1, 20, 63, 64, 65, 500):
        for micro_step, rank in itertools.product(range(num_micro_steps), range(world_size)):
            first = ((step * num_micro_steps + micro_step) * world_size + rank) * 3
            expected = [
                permuted(np.array([place % num_windows]), num_windows, seed=1, epoch=place // num_windows).item()
                for place in range(first, first + 3)
            ]
            batch = data.batch(
                step, rank=rank, world_size=world_size, micro_step=micro_step, num_micro_steps=num_micro_steps
            )
            assert windows(batch) == expected


def test_another_seed_is_another_order():
    orders = {tuple(windows(dataset(seed=seed, batch_size=25).batch(0))) for seed in range(20)}
    assert len(orders) == 20


def test_seed_and_epoch_are_not_interchangeable():
    first, second = dataset(seed=0, batch_size=25), dataset(seed=1, batch_size=25)
    assert windows(first.batch(1)) != windows(second.batch(0))


# The tokens


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int32", "int64"])
@pytest.mark.parametrize("keep_on_device", [True, False])
def test_targets_are_the_inputs_one_token_on(dtype, keep_on_device):
    top = min(np.iinfo(dtype).max, 2**31 - 1)
    tokens = (top - np.arange(101)).astype(dtype)  # up to the largest id, whose sign bit is set in 16 bits
    data = dataset(tokens, batch_size=25, keep_on_device=keep_on_device)
    batch = data.batch(0)
    for tensor in (batch.inputs_BT, batch.targets_BT):
        assert tensor.dtype == torch.int64 and tensor.is_contiguous() and tensor.shape == (25, 4)
    assert torch.equal(batch.inputs_BT - 1, batch.targets_BT)
    assert sorted(batch.inputs_BT.flatten().tolist()) == sorted(tokens[:100].tolist())
    assert batch.document_ids_BT is None
    assert batch.num_tokens == batch.num_targets == 100


@pytest.mark.parametrize("keep_on_device", [True, False])
def test_windows_cross_the_edges_of_shards(folder, keep_on_device):
    shards = gm.Shards(folder)
    assert len(shards.paths) > 5
    whole = dataset(np.asarray(shards.tokens))
    data = dataset(shards, keep_on_device=keep_on_device)
    assert data.num_windows == (shards.num_tokens - 1) // 4
    assert all(same(data.batch(step), whole.batch(step)) for step in range(20))


@pytest.mark.parametrize("context_length", [1, 2, 13, 40])
def test_windows_shorter_and_longer_than_shards(folder, context_length):
    shards = gm.Shards(folder)
    whole = dataset(np.asarray(shards.tokens), context_length=context_length)
    data = dataset(shards, context_length=context_length)
    assert all(same(data.batch(step), whole.batch(step)) for step in range(5))


@pytest.mark.parametrize("keep_on_device", [True, False])
@pytest.mark.parametrize("end_of_text", [True, False])
def test_document_ids_follow_the_ends_of_documents_across_shards(tmp_path, end_of_text, keep_on_device):
    build_folder(tmp_path / "s", TEXTS, shard_tokens=5, tokenizer=train(), end_of_text=end_of_text)
    shards = gm.Shards(tmp_path / "s")
    document_of = np.repeat(np.arange(len(shards)), [len(document) for document in shards])
    data = dataset(shards, context_length=9, document_mask=True, keep_on_device=keep_on_device)
    plain = dataset(shards, context_length=9)
    starts = np.flatnonzero(np.arange(data.num_windows * 9) % 9 == 0)
    window_of = {tuple(np.asarray(shards.tokens)[start : start + 10].tolist()): start for start in starts}
    for step in range(data.num_windows // 3):
        batch = data.batch(step)
        assert batch.document_ids_BT.dtype == torch.int64 and batch.document_ids_BT.is_contiguous()
        assert torch.equal(batch.targets_BT, plain.batch(step).targets_BT)  # also those in the next document
        for inputs, targets, ids in zip(batch.inputs_BT, batch.targets_BT, batch.document_ids_BT, strict=True):
            start = window_of[(*inputs.tolist(), targets[-1].item())]
            numbers = document_of[start : start + 9]
            assert torch.equal(ids[:, None] == ids, torch.from_numpy(numbers[:, None] == numbers))
            assert ids[0] == 0 and set(ids.diff().tolist()) <= {0, 1}


def test_a_memory_map_of_a_plain_file_is_a_dataset(tmp_path):
    numbered(101).tofile(tmp_path / "train.bin")
    mapped = np.memmap(tmp_path / "train.bin", np.uint16, "r")
    assert same(dataset(mapped).batch(3), dataset().batch(3))
    assert same(dataset(mapped, keep_on_device=True).batch(3), dataset().batch(3))
    assert same(dataset(np.repeat(numbered(101), 2)[::2]).batch(3), dataset().batch(3))


def test_epochs_and_tokens_are_counted_over_all_ranks():
    data = dataset(batch_size=5)  # 25 windows
    assert data.tokens_per_step() == 20
    assert data.tokens_per_step(world_size=2, num_micro_steps=3) == 120
    assert [data.epoch(step) for step in (0, 1, 5, 12)] == [0, 0.2, 1, 2.4]
    assert data.epoch(5, world_size=2, num_micro_steps=2) == 4


# Validation


def test_a_full_validation_has_every_window_once_in_batches_of_one_shape():
    batches = list(dataset(batch_size=4).validation_batches())  # 25 windows
    assert [batch.inputs_BT.shape for batch in batches] == [(4, 4)] * 7
    assert [batch.num_targets.item() for batch in batches] == [16] * 6 + [4]
    counted = [batch.targets_BT[batch.targets_BT != IGNORED] for batch in batches]
    assert torch.cat(counted).tolist() == list(range(1, 101))


def test_a_limited_validation_is_a_fixed_subset_spread_over_the_split():
    chosen = [windows(batch) for batch in dataset(seed=1, batch_size=5).validation_batches(2)]
    assert chosen == [[0, 2, 5, 7, 10], [12, 15, 17, 20, 22]]
    assert chosen == [windows(batch) for batch in dataset(seed=2, batch_size=5).validation_batches(2)]
    assert len(list(dataset(batch_size=5).validation_batches(100))) == 5


@pytest.mark.parametrize("num_batches", [None, 3])
def test_ranks_share_a_validation_and_have_equally_many_batches(num_batches):
    def targets(rank, world_size):
        data = dataset(numbered(4 * 9 + 1), batch_size=2)
        return [batch.targets_BT for batch in data.validation_batches(num_batches, rank=rank, world_size=world_size)]

    alone, shared = targets(0, 1), [targets(rank, 3) for rank in range(3)]
    assert len({len(batches) for batches in shared}) == 1
    together = torch.cat([batch for batches in zip(*shared, strict=True) for batch in batches])
    kept = [tensor[tensor != IGNORED].tolist() for tensor in (torch.cat(alone), together)]
    assert kept[0] == kept[1]


def test_validation_does_not_disturb_training():
    data, alone = dataset(), dataset()
    for step in range(6):
        assert same(data.batch(step), alone.batch(step))
        assert len(list(data.validation_batches(2))) == 2


def test_the_validation_split_where_there_is_one(folder, tmp_path):
    assert validation_shards(folder).split == "val"
    build_folder(tmp_path / "s", TEXTS, tokenizer=train())
    assert validation_shards(tmp_path / "s") is None


# Prefetching


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("gristmill-batches")]


def test_close_ends_the_thread_and_a_batch_starts_it_again():
    before = len(reading_threads())
    with dataset() as data:
        first = data.batch(0)
        assert len(reading_threads()) == before + 1
    assert len(reading_threads()) == before
    assert same(data.batch(0), first)
    assert len(reading_threads()) == before + 1
    data.close()
    data.close()
    assert len(reading_threads()) == before


def test_without_prefetch_and_with_tokens_on_the_device_there_is_no_thread():
    before = len(reading_threads())
    dataset(prefetch=False).batch(0)
    dataset(keep_on_device=True).batch(0)
    assert len(reading_threads()) == before


def test_an_error_is_raised_by_the_call_that_asks_for_the_item():
    def make(number):
        if number == 2:
            raise OSError("no such disk")
        return number

    ahead = ReadAhead(make)
    assert [ahead.take(number, 1) for number in (0, 1)] == [0, 1]
    with pytest.raises(OSError, match="no such disk"):
        ahead.take(2, 1)
    assert [ahead.take(number, 1) for number in (3, 4)] == [3, 4]
    ahead.close()


def test_items_are_made_ahead_and_no_more_than_two():
    made, taken = [], threading.Semaphore(0)
    ahead = ReadAhead(lambda number: (made.append(number), taken.release()))
    ahead.take(10, 5)
    for _ in range(3):
        assert taken.acquire(timeout=10)
    ahead.close()
    assert made == [10, 15, 20]


def test_other_strides_are_answered_too():
    ahead = ReadAhead(lambda number: number)
    calls = [(0, 1), (1, 1), (2, 3), (5, 3), (8, 1), (9, 1), (9, 1), (0, 0), (0, 0)]
    assert [ahead.take(*call) for call in calls] == [number for number, _ in calls]
    ahead.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_continues_with_a_new_thread(folder):
    answer = run_script(
        """
        import os, sys
        import gristmill as gm
        from gristmill.lm.data.token_dataset import TokenDataset
        data = TokenDataset(gm.Shards(sys.argv[1]), context_length=4, batch_size=3, seed=1)
        data.batch(0)
        child = os.fork()
        found = [data.batch(step).inputs_BT.tolist() for step in range(1, 5)]
        data.close()
        print(found, flush=True)
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        folder,
    )
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    data = dataset(gm.Shards(folder))
    assert lines == [str([data.batch(step).inputs_BT.tolist() for step in range(1, 5)])] * 2


def test_a_program_that_does_not_close_still_ends(folder):
    answer = run_script(
        """
        import sys
        import gristmill as gm
        from gristmill.lm.data.token_dataset import TokenDataset
        data = TokenDataset(gm.Shards(sys.argv[1]), context_length=4, batch_size=3, seed=1)
        data.batch(0)
        """,
        folder,
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_dataset_travels_to_another_process(folder):
    data = dataset(gm.Shards(folder), document_mask=True)
    first = data.batch(0)
    assert same(pickle.loads(pickle.dumps(data)).batch(0), first)
    data.close()


# On a GPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("keep_on_device", [True, False, "auto"])
@pytest.mark.parametrize("prefetch", [True, False])
def test_batches_on_a_gpu_are_those_of_the_cpu(folder, keep_on_device, prefetch):
    shards = gm.Shards(folder)
    options = {"document_mask": True, "prefetch": prefetch}
    data = dataset(shards, device="cuda", keep_on_device=keep_on_device, **options)
    assert data.tokens_on_device == (keep_on_device is not False)
    plain = dataset(shards, **options)
    for step in range(20):
        batch = data.batch(step)
        assert batch.inputs_BT.is_cuda and same(batch.to("cpu"), plain.batch(step))
    pairs = zip(data.validation_batches(), plain.validation_batches(), strict=True)
    assert all(same(batch.to("cpu"), other) for batch, other in pairs)
    data.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_ids_with_the_highest_bit_set_arrive_on_a_gpu():
    tokens = (65_535 - np.arange(101)).astype(np.uint16)
    for keep_on_device in (True, False):
        batch = dataset(tokens, device="cuda", keep_on_device=keep_on_device).batch(0)
        assert batch.inputs_BT.min() > 65_000 and torch.equal(batch.inputs_BT - 1, batch.targets_BT)


# Bad input


@pytest.mark.parametrize("num_tokens", [0, 1, 4])
def test_too_few_tokens_for_one_window(num_tokens):
    with pytest.raises(gm.TrainingError, match=rf"there are {num_tokens} tokens, .*context_length=4 needs 5"):
        dataset(numbered(num_tokens))
    assert dataset(numbered(5)).num_windows == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context_length": 0}, "context_length must be >= 1, got 0"),
        ({"context_length": 2.5}, "context_length=2.5 is of type float"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"seed": -1}, "seed must be >= 0 and < 2[*]{2}6[34], got -1"),
        ({"keep_on_device": "yes"}, "keep_on_device='yes' is not valid"),
        ({"document_mask": True}, "document_mask=True needs the ends of documents"),
        ({"tokens": np.zeros(9)}, "dtype float64"),
        ({"tokens": np.zeros((9, 9), np.int32)}, "2 dimensions"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(gm.OptionError, match=message):
        dataset(**options)


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
