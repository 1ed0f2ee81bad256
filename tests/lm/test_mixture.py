"""Mixtures: several sources in fixed shares, as a pure function of the seed and the number of the sequence."""

import itertools
import math

import numpy as np
import pytest
import torch

import gristmill as gm
from gristmill.errors import CheckpointError, OptionError, TrainingError
from gristmill.lm import TokenDataset
from gristmill.lm.data.mixture import Mixture, find_mixture
from gristmill.lm.data.window_order import MixedOrder, shares_of
from lm.tiny_runs import TINY, Crash, assert_same_run, crash_at, records, texts, tokenizer, train
from shards.builder import build_folder

torch.set_num_threads(1)

LENGTH = 4


def order(sizes, weights, *, seed=0, shift=True):
    return MixedOrder(sizes, LENGTH, shares=shares_of(weights), seed=seed, shift=shift)


def webster(shares, num_blocks, block=1_000):
    """Sequences per source after each block: the next one goes to the largest share / (n + 0.5)."""
    given = [0] * len(shares)
    for _ in range(num_blocks):
        for _ in range(block):
            best = max(range(len(shares)), key=lambda s: (shares[s] / (given[s] + 0.5), -s))
            given[best] += 1
        yield list(given)


# The order


@pytest.mark.parametrize("weights", [[0.7, 0.3], [1, 1, 1], [5, 3, 1.5, 0.0004], [1e-9, 1], [2]])
def test_shares_are_whole_numbers_that_add_up(weights):
    shares = shares_of(weights)
    assert sum(shares) == 1_000_000 and min(shares) >= 1
    exact = np.array(weights) / sum(weights) * 1e6
    assert np.abs(shares - np.maximum(exact, 1)).max() <= 1


@pytest.mark.parametrize("weights", [[3, 1e-9, 1e-9], [1e-9] * 50 + [1], [1.5e308, 0.75e308]])
def test_shares_of_extreme_weights_add_up_and_none_is_zero(weights):
    shares = shares_of(weights)
    assert sum(shares) == 1_000_000 and min(shares) >= 1
    exact = np.array(weights) / max(weights)
    assert np.abs(shares - exact / exact.sum() * 1e6).max() <= len(weights)


@pytest.mark.parametrize("weights", [[0.7, 0.3], [1, 1, 1], [5, 3, 1.5, 0.0004]])
def test_every_block_has_the_shares_that_the_plain_rule_gives(weights):
    mixed = order([400] * len(weights), weights)
    sources, _ = mixed.sources(np.arange(8_000))
    for end, expected in zip(range(1_000, 9_000, 1_000), webster(shares_of(weights), 8), strict=True):
        found = np.bincount(sources[:end], minlength=len(weights))
        assert found.tolist() == expected
        assert np.abs(found - end * np.array(weights) / sum(weights)).max() <= 1


def test_shares_are_exact_in_the_long_run_and_no_source_skips_a_window():
    mixed = order([400, 900, 50], [0.6, 0.3991, 0.0009])
    sources, places = mixed.sources(np.arange(1_002_000))
    assert np.bincount(sources[:1_000_000]).tolist() == [600_000, 399_100, 900]
    for source in range(3):
        there = places[sources == source]
        assert np.array_equal(there, np.arange(len(there)))


def test_the_source_of_a_sequence_does_not_depend_on_other_requests():
    mixed = order([400, 900], [1, 2])
    sources, places = mixed.sources(np.arange(5_000))
    chosen = np.random.default_rng(0).permutation(5_000)[:300]
    found, found_places = mixed.sources(chosen)
    assert np.array_equal(found, sources[chosen]) and np.array_equal(found_places, places[chosen])


def test_sources_are_shuffled_inside_a_block_and_by_the_seed():
    one, other = (order([400, 900], [1, 1], seed=seed).sources(np.arange(1_000))[0] for seed in (0, 1))
    assert one.sum() == other.sum() == 500
    assert not np.array_equal(one, other)
    assert 400 < np.count_nonzero(np.diff(one)) < 600  # 499.5 of 999 neighbours differ on average


def two_sources():
    """Tokens whose ids encode their positions: 20 windows below 1,000, and 7 from 1,000 on."""
    return [np.arange(81, dtype=np.uint16), np.arange(1_000, 1_029, dtype=np.uint16)]


def first_tokens(data, num_steps):
    return [token for step in range(num_steps) for token in data.batch(step).inputs_BT[:, 0].tolist()]


def test_each_source_gives_every_window_once_before_it_repeats_one():
    data = TokenDataset(two_sources(), context_length=LENGTH, batch_size=5, weights=[1, 1], shift_windows=False)
    assert data.num_windows == 27
    found = first_tokens(data, 40)
    one, other = [t for t in found if t < 1_000], [t for t in found if t >= 1_000]
    assert sorted(one[:20]) == list(range(0, 80, 4)) and sorted(one[20:40]) == list(range(0, 80, 4))
    epochs = [other[begin : begin + 7] for begin in range(0, 70, 7)]
    assert all(sorted(epoch) == list(range(1_000, 1_028, 4)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) > 5


def test_without_weights_the_sizes_decide():
    data = TokenDataset(two_sources(), context_length=LENGTH, batch_size=10)
    found = first_tokens(data, 100)
    assert abs(sum(token < 1_000 for token in found) - 1_000 * 20 / 27) <= 1


@pytest.mark.parametrize(("world_size", "num_micro_steps", "batch_size"), [(2, 1, 6), (1, 3, 4), (3, 2, 2)])
def test_ranks_and_micro_batches_divide_the_same_sequences(world_size, num_micro_steps, batch_size):
    options = {"context_length": LENGTH, "weights": [3, 1], "seed": 5}
    whole = TokenDataset(two_sources(), batch_size=12, **options)
    parts = TokenDataset(two_sources(), batch_size=batch_size, **options)
    for step in (0, 1, 7, 90, 500):
        found = [
            parts.batch(step, rank=rank, world_size=world_size, micro_step=micro, num_micro_steps=num_micro_steps)
            for micro, rank in itertools.product(range(num_micro_steps), range(world_size))
        ]
        assert torch.equal(torch.cat([batch.targets_BT for batch in found]), whole.batch(step).targets_BT)


def test_windows_never_cross_from_one_source_to_the_next():
    data = TokenDataset(two_sources(), context_length=LENGTH, batch_size=10, weights=[1, 1])
    for step in range(50):
        batch = data.batch(step)
        assert torch.equal(batch.targets_BT, batch.inputs_BT + 1)  # 80 is never followed by 1,000


def test_ids_of_several_types_are_mixed(tmp_path):
    arrays = [np.arange(41, dtype=np.uint16), np.arange(70_000, 70_041, dtype=np.uint32)]
    for keep in (False, True):
        data = TokenDataset(arrays, context_length=LENGTH, batch_size=10, keep_on_device=keep)
        assert {token // 70_000 for token in first_tokens(data, 3)} == {0, 1}
        assert torch.equal(data.batch(0).targets_BT, data.batch(0).inputs_BT + 1)


def test_items_of_a_mixture_are_all_windows_one_source_after_the_other():
    data = TokenDataset(two_sources(), context_length=LENGTH, weights=[1, 9])
    assert [item["input_ids"][0].item() for item in data] == [*range(0, 80, 4), *range(1_000, 1_028, 4)]
    stream = data.to_iterable_dataset("pairs", num_epochs=None)
    found = [inputs[0].item() for inputs, _ in itertools.islice(stream, 1_000)]
    assert sum(token >= 1_000 for token in found) == 900


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1], "weights has 1 numbers for 2 sources"),
        ([1, 0], "the weight 0 is not a positive"),
        ([1, "2"], "weight '2'"),
    ],
)
def test_bad_weights_of_a_dataset_are_named(weights, message):
    with pytest.raises(OptionError, match=message):
        TokenDataset(two_sources(), context_length=LENGTH, weights=weights)


# Notation of mixtures


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c:0.5", "a:0.7:1"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("data", "sources", "weights"),
    [
        ({"a": 0.7, "b": 3}, ("a", "b"), (0.7, 3.0)),
        (["a:0.7", "b:1e-3"], ("a", "b"), (0.7, 0.001)),
        (("a", "b"), ("a", "b"), None),
        (["c:0.5", "a"], ("c:0.5", "a"), None),  # there is a folder of this name
        (["c:0.5:0.2", "a:0.8"], ("c:0.5", "a"), (0.2, 0.8)),
        (["a:0.7:1", "b"], ("a:0.7:1", "b"), None),
        (["missing:1", "b:2"], ("missing", "b"), (1.0, 2.0)),
        ("a:0.7", ("a",), (0.7,)),
    ],
)
def test_how_mixtures_are_written(here, data, sources, weights):
    assert find_mixture(data) == Mixture(sources, weights)


@pytest.mark.parametrize(
    "data", ["a", "c:0.5", ["Once upon a time.", "He said: 3"], ["x" * 5_000], [], {}, {"text": ["a"]}, 3, None]
)
def test_data_that_is_not_a_mixture(here, data):
    assert find_mixture(data) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["a:0.7", "b"], "b has no weight, but a has one. Write a weight after each, such as 'b:0.5'"),
        (["a:0", "b:1"], "a: the weight 0.0 is not a positive number"),
        (["a:nan", "b:1"], "a: the weight nan is not a positive number"),
        ({"a": -1, "b": 2}, "a: the weight -1 is not a positive number"),
        (["a:1", "./a:2"], "a is given twice. Pass it once"),
        (["a:x", "b:1"], "a:x: 'x' is not a weight. Write a number, such as 'a:0.5'"),
        ("a:70%", "a:70%: '70%' is not a weight. Write a number"),
    ],
)
def test_what_is_wrong_with_a_mixture_is_named(here, data, message):
    with pytest.raises(OptionError, match=message):
        find_mixture(data)


# Runs


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two folders of shards of one tokenizer, and one of another."""
    root = tmp_path_factory.mktemp("sources")
    tok = tokenizer()
    for name, number, seed in (("large", 120, 0), ("small", 15, 7)):
        build_folder(root / name, texts(number, seed), shard_tokens=700, tokenizer=tok, val_texts=texts(12, seed + 1))
    other = gm.train_tokenizer([" ".join(texts(50))], vocab_size=280, progress=None)
    build_folder(root / "other", texts(40), shard_tokens=700, tokenizer=other)
    build_folder(root / "unseen", texts(40, 3), shard_tokens=700, tokenizer=tok)
    return root


def mixture(folders, large=0.7, small=0.3):
    return {str(folders / "large"): large, str(folders / "small"): small}


@pytest.fixture(scope="module")
def whole(folders, tmp_path_factory):
    run = tmp_path_factory.mktemp("mixed") / "run"
    train(mixture(folders), run)
    return run


def messages(run):
    return " ".join(record["message"] for record in records(run, "event"))


def test_a_run_on_a_mixture_records_the_loss_of_each_source(folders, whole):
    found = records(whole, "val")
    assert len(found) == 3  # two of the subset, and all at the end
    for record in found:
        losses = record["sources"]
        assert losses.keys() == {"large", "small"}
        assert math.isclose(record["loss"], 0.7 * losses["large"] + 0.3 * losses["small"], rel_tol=1e-9)
    for name in ("large", "small"):
        alone = gm.lm.evaluate(whole, folders / name, which="latest", device="cpu", batch_size=4)
        assert math.isclose(found[-1]["sources"][name], alone.loss, rel_tol=1e-6)
    shares = {"large": 0.7, "small": 0.3}
    splits = {name: gm.Shards(folders / name, split="val") for name in shares}
    bytes_per_token = sum(shares[name] * split.source_bytes / split.num_tokens for name, split in splits.items())
    assert math.isclose(found[-1]["bits_per_byte"], found[-1]["loss"] / math.log(2) / bytes_per_token, rel_tol=1e-9)


def test_the_subset_for_validation_has_the_shares_of_the_mixture(folders, tmp_path):
    shards = {name: gm.Shards(folders / name, split="val") for name in ("large", "small")}
    from gristmill.lm.data.mixed_data import MixedValidation

    data = MixedValidation(shards, {"large": 700_000, "small": 300_000}, context_length=4, batch_size=2, seed=0)
    assert data.divided(20) == {"large": 14, "small": 6}
    assert data.divided(1) == {"large": 1, "small": 1}
    everything = {name: (each.num_tokens - 1) // 4 for name, each in shards.items()}
    assert data.divided(None) == data.divided(data.num_sequences) == everything
    for number in (5, None):
        batches = [list(data.validation_batches(num_sequences=number, rank=r, world_size=2)) for r in (0, 1)]
        assert len(batches[0]) == len(batches[1])
        num_targets = sum(int(batch.num_targets) for batch in itertools.chain(*batches))
        assert num_targets == 4 * sum(data.divided(number).values())


def test_an_interrupted_run_on_a_mixture_resumes_bit_exactly(folders, whole, tmp_path):
    with pytest.raises(Crash):
        train(mixture(folders), tmp_path / "run", progress=crash_at(12))
    train(list(map("{0[0]}:{0[1]}".format, mixture(folders).items())), tmp_path / "run", resume="auto")
    assert_same_run(whole, tmp_path / "run", 20)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"large": 0.6, "small": 0.4}, r"the weights were large 70 %, small 30 % and are now large 60 %, small 40 %"),
        ({"large": 0.7, "unseen": 0.3}, r"was a mixture of large and small and is now a mixture of large and unseen"),
        ({"small": 0.3, "large": 0.7}, r"was a mixture of large and small and is now a mixture of small and large"),
        ({"large": 1}, r"was a mixture of large and small and is now one folder of shards"),
    ],
)
def test_a_run_is_not_resumed_with_another_mixture(folders, whole, other, message):
    with pytest.raises(CheckpointError, match=message):
        train({str(folders / name): weight for name, weight in other.items()}, whole, resume="auto", max_steps=30)


def test_a_folder_that_was_moved_is_recognized(folders, whole, tmp_path):
    from gristmill.lm.data.identity import identity_differences

    names = ("large", "small")
    for name in names:
        (tmp_path / f"moved-{name}").symlink_to(folders / name)
    options = gm.lm.GPTConfig(context_length=16)
    before = options.open_data(mixture(folders)).identity
    moved = options.open_data([f"{tmp_path / f'moved-{name}'}:{w}" for name, w in zip(names, (7, 3), strict=True)])
    assert identity_differences(before, moved.identity) == []


def test_two_devices_worth_of_micro_batches_give_the_same_run(folders, whole, tmp_path):
    train(mixture(folders), tmp_path / "run", batch_size=2, gradient_accumulation_steps=2)
    one, two = ([record["loss"] for record in records(run, "train")] for run in (whole, tmp_path / "run"))
    assert np.allclose(one, two, rtol=1e-5)


def test_an_epoch_of_a_mixture_is_all_tokens_together(folders):
    options = TINY | {"max_steps": None, "epochs": 2}
    planned = gm.lm.plan(mixture(folders), **options)
    total = sum(gm.Shards(folders / name).num_tokens for name in ("large", "small"))
    assert planned.num_steps == 2 * total // (16 * 4)


def test_a_plan_reports_how_often_each_source_is_read_and_warns_of_many_epochs(folders):
    planned = gm.lm.plan(mixture(folders), **TINY | {"max_steps": 200})
    for name, share in (("large", 0.7), ("small", 0.3)):
        num_windows = (gm.Shards(folders / name).num_tokens - 1) // 16
        assert math.isclose(planned.source_epochs[name], 200 * 4 * share / num_windows)
    assert planned.source_epochs["small"] > 4
    rows = " ".join(value for _, value in planned.rows())
    assert f"small 30.0% ({planned.source_epochs['small']:.3g} epochs)" in rows
    assert f"the run reads small {planned.source_epochs['small']:.1f} times." in rows
    assert "the run reads large" not in rows
    assert gm.lm.plan(folders / "large", **TINY).source_epochs == {}


def test_a_source_without_validation_is_named_and_left_out_of_the_loss(folders, tmp_path):
    data = {str(folders / "large"): 0.5, str(folders / "unseen"): 0.5}
    train(data, tmp_path / "run", max_steps=4)
    assert "no validation on unseen" in messages(tmp_path / "run")
    record = records(tmp_path / "run", "val")[-1]
    assert record["sources"] == {"large": record["loss"]}


def test_different_tokenizers_are_refused_with_both_names(folders, tmp_path):
    with pytest.raises(OptionError, match=r"large and other cannot be mixed: their tokenizers.*vocab_size was 300"):
        train([folders / "large", folders / "other"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_source_that_is_too_small_or_missing_is_named(folders, tmp_path):
    with pytest.raises(TrainingError, match=r"small: there are [\d,]+ tokens, and one window"):
        train([folders / "large", folders / "small"], tmp_path / "run", context_length=600)
    with pytest.raises((OSError, ValueError), match="missing"):
        train({str(folders / "large"): 1, str(tmp_path / "missing"): 1}, tmp_path / "run")


def test_a_vae_refuses_a_mixture(folders, tmp_path):
    with pytest.raises(OptionError, match="large and small: this model reads whole documents of one folder"):
        gm.lm.train(mixture(folders), out=tmp_path / "run", model="vae", progress=None)


def test_a_mixture_of_one_source_is_that_source(folders, tmp_path):
    train(folders / "large", tmp_path / "alone", max_steps=3)
    train({str(folders / "large"): 0.4}, tmp_path / "mixed", max_steps=3)
    assert_same_run(tmp_path / "alone", tmp_path / "mixed", 3)


def test_the_report_has_the_loss_on_each_source(whole):
    from gristmill.report import write_report

    page = write_report(whole).read_text(encoding="utf-8")
    for name, loss in records(whole, "val")[-1]["sources"].items():
        assert f"Validation loss on {name}" in page and f"{loss:.3f}" in page
    assert "One source of the mixture." in page


def test_documents_of_a_mixture_are_those_of_its_sources(folders):
    sources = [gm.Shards(folders / name) for name in ("large", "small")]
    options = {"context_length": 16, "batch_size": 6, "document_mask": True, "shift_windows": False}
    mixed = TokenDataset(sources, **options, weights=[1, 1])
    on_device = TokenDataset(sources, **options, weights=[1, 1], keep_on_device=True)
    expected = {
        tuple(item["input_ids"].tolist()): item["document_ids"].tolist()
        for source in sources
        for item in TokenDataset(source, **options)
    }
    for step in range(40):
        one, two = mixed.batch(step), on_device.batch(step)
        assert torch.equal(one.inputs_BT, two.inputs_BT) and torch.equal(one.document_ids_BT, two.document_ids_BT)
        for inputs, ids in zip(one.inputs_BT.tolist(), one.document_ids_BT.tolist(), strict=True):
            assert expected[tuple(inputs)] == ids
