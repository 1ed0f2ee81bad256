"""shift_windows: every epoch after the first cuts the tokens into windows at another offset."""

import json

import numpy as np
import pytest
import torch

import gristmill as gm
from gristmill.lm.data.token_dataset import TokenDataset
from gristmill.lm.training.checkpoint import json_checksum
from gristmill.lm.training.config import config_of_run, differences
from lm.tiny_runs import build_shards, train
from shards.builder import build_folder
from shards.builder import train as train_tokenizer

LENGTH = 8


def dataset(num_tokens=77, *, batch_size=3, context_length=LENGTH, **options):
    tokens = np.arange(num_tokens, dtype=np.uint16)
    return TokenDataset(tokens, context_length=context_length, batch_size=batch_size, seed=4, **options)


def starts(data, epoch):
    """The first tokens of all windows of an epoch, sorted, from batches of size 1."""
    number = data.num_windows
    return sorted(int(data.batch(step).inputs_BT[0, 0]) for step in range(epoch * number, (epoch + 1) * number))


def test_the_first_epoch_begins_at_the_first_token():
    shifted, plain = dataset(batch_size=1), dataset(batch_size=1, shift_windows=False)
    for step in range(shifted.num_windows):
        assert torch.equal(shifted.batch(step).inputs_BT, plain.batch(step).inputs_BT)


def test_without_shifts_every_epoch_has_the_same_windows():
    data = dataset(batch_size=1, shift_windows=False)
    assert all(starts(data, epoch) == list(range(0, 72, LENGTH)) for epoch in range(4))


@pytest.mark.parametrize("num_tokens", [73, 74, 80])  # nothing, one token, as many as possible are left over
def test_a_shifted_epoch_has_side_by_side_windows_and_the_last_ends_inside_the_tokens(num_tokens):
    data, offsets = dataset(num_tokens, batch_size=1), set()
    for epoch in range(1, 40):
        found = starts(data, epoch)
        assert len(found) == data.num_windows == 9
        offset = found[0]
        offsets.add(offset)
        expected = [min(offset + LENGTH * window, num_tokens - 1 - LENGTH) for window in range(9)]
        assert found == expected
    assert offsets <= set(range(LENGTH)) and len(offsets) > 4


def test_epochs_of_one_window_work():
    data = dataset(LENGTH + 1, batch_size=2)
    assert all(torch.equal(data.batch(step).inputs_BT[:, 0], torch.tensor([0, 0])) for step in range(5))


def test_another_seed_has_other_offsets():
    one, other = (
        TokenDataset(np.arange(7 * 64 + 64, dtype=np.uint16), context_length=64, batch_size=1, seed=seed)
        for seed in (0, 1)
    )
    assert [starts(one, epoch)[0] for epoch in range(1, 6)] != [starts(other, epoch)[0] for epoch in range(1, 6)]


@pytest.mark.parametrize("options", [{"keep_on_device": True}, {"prefetch": False}])
def test_shifted_batches_are_the_same_however_tokens_are_read(tmp_path, options):
    texts = ["low lower", "", "newest widest newer", "x", "the lowest low low low lower", "wider"] * 5
    build_folder(tmp_path / "shards", texts, shard_tokens=7, tokenizer=train_tokenizer())
    shards = gm.Shards(tmp_path / "shards")
    tokens = shards.tokens[:].astype(np.int64)
    documents = np.searchsorted(shards.document_ends, np.arange(len(tokens)), side="right")
    common = {"context_length": 9, "batch_size": 2, "seed": 1, "document_mask": True}
    plain, other = TokenDataset(shards, **common), TokenDataset(shards, **common, **options)
    for step in range(3 * plain.num_windows):
        one, two = plain.batch(step), other.batch(step)
        assert torch.equal(one.inputs_BT, two.inputs_BT) and torch.equal(one.targets_BT, two.targets_BT)
        assert torch.equal(one.document_ids_BT, two.document_ids_BT)
        for inputs_T, ids_T in zip(one.inputs_BT.numpy(), one.document_ids_BT.numpy(), strict=True):
            places = [i for i in range(len(tokens) - 9) if np.array_equal(tokens[i : i + 9], inputs_T)]
            boundaries = [np.diff(documents[i : i + 9]) > 0 for i in places]
            assert any(np.array_equal(np.diff(ids_T) > 0, each) for each in boundaries)


def test_two_ranks_share_the_shifted_windows_of_one():
    one, two = dataset(batch_size=6), dataset(batch_size=3)
    for step in range(20):
        halves = [two.batch(step, rank=rank, world_size=2).inputs_BT for rank in (0, 1)]
        assert torch.equal(one.batch(step).inputs_BT, torch.cat(halves))


# Runs


def without_option(run):
    """Change the checkpoints of a run to those of a version without this option."""
    for path in [run / "config.json", *run.glob("checkpoints/*/state.json")]:
        content = json.loads(path.read_text())
        content.get("config", content).pop("shift_windows")
        if "checksum" in content:
            del content["checksum"]
            content["checksum"] = json_checksum(content)
        path.write_text(json.dumps(content))


def losses(run):
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if record["kind"] == "train"]


def test_a_run_from_before_the_option_resumes_without_shifts(tmp_path):
    shards = build_shards(tmp_path / "shards", number=20)  # an epoch is a few steps
    options = {"max_steps": 20, "checkpoint_interval": 10, "log_interval": 2}
    train(shards, tmp_path / "plain", shift_windows=False, **options)
    train(shards, tmp_path / "shifted", **options)
    train(shards, tmp_path / "old", shift_windows=False, **options | {"max_steps": 10, "schedule": "constant"})
    train(shards, tmp_path / "long", shift_windows=False, **options | {"schedule": "constant"})
    without_option(tmp_path / "old")
    gm.lm.train(shards, out=tmp_path / "old", resume=True, max_steps=20, progress=None)
    assert losses(tmp_path / "old") == losses(tmp_path / "long")
    assert losses(tmp_path / "plain") != losses(tmp_path / "shifted")


def test_a_saved_config_without_the_option_means_no_shifts():
    assert config_of_run({"model": "gpt", "max_steps": 3}, source="test").model.shift_windows is False
    now = gm.lm.TrainConfig.from_options({"max_steps": 3})
    assert differences({"model": "gpt", "max_steps": 3}, now) == ["shift_windows was False and is now True"]
