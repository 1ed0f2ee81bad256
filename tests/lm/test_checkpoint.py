"""Checkpoints: written atomically, verified when read, and never executed."""

import errno
import json
import os

import pytest
import torch
from safetensors.torch import load_file

import gristmill as gm
from gristmill.errors import CheckpointError, NotFiniteError
from gristmill.lm.data.identity import identity_differences
from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training.checkpoint import (
    CheckpointWriter,
    find_checkpoint,
    list_checkpoints,
    load_weights,
    prune,
    read_state,
    read_tensors,
    write_checkpoint,
)

TENSORS = {
    "a.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "scalar": torch.tensor(3.5),
    "half": torch.tensor([1.0, -2.0], dtype=torch.bfloat16),
    "ids": torch.tensor([1, 2**40]),
    "empty": torch.zeros(0, 3),
}


def write(run, step, *, val_loss=None, tensors=TENSORS):
    state = {"step": step, "val_loss": val_loss, "shards": {}}
    return write_checkpoint(run, state, {"model.safetensors": tensors})


def test_what_is_read_is_what_was_written(tmp_path):
    folder = write(tmp_path, 7, val_loss=1.25)
    state = read_state(folder)
    assert (state["step"], state["val_loss"], folder.name) == (7, 1.25, "step-000007")
    found = read_tensors(folder, "model.safetensors", state)
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "state.json"}


def test_a_strided_tensor_is_written_as_its_values(tmp_path):
    folder = write(tmp_path, 1, tensors={"t": torch.arange(6.0).reshape(2, 3).T})
    assert torch.equal(load_file(folder / "model.safetensors")["t"], torch.arange(6.0).reshape(2, 3).T)


def test_the_same_tensors_give_the_same_bytes(tmp_path):
    one, other = write(tmp_path, 1), write(tmp_path, 2, tensors=dict(reversed(TENSORS.items())))
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


@pytest.mark.parametrize("file", ["model.safetensors", "state.json"])
def test_every_flipped_byte_is_found_and_the_file_is_named(tmp_path, file):
    folder = write(tmp_path, 1)
    whole = (folder / file).read_bytes()
    for position in range(0, len(whole), 7):
        data = bytearray(whole)
        data[position] ^= 1
        (folder / file).write_bytes(data)
        with pytest.raises(CheckpointError, match=file.replace(".", r"\.")):
            read_tensors(folder, "model.safetensors", read_state(folder))
    (folder / file).write_bytes(whole)
    read_tensors(folder, "model.safetensors", read_state(folder))


def test_a_truncated_or_missing_file_is_named_with_what_to_do(tmp_path):
    folder = write(tmp_path, 1)
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match=f"has {len(data) - 1} bytes instead of {len(data)}.*remove .*step-"):
        read_tensors(folder, "model.safetensors", read_state(folder))
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=": missing"):
        read_tensors(folder, "model.safetensors", read_state(folder))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x04K\x01.", "not valid JSON"),
        (b"[1]", "not the state of a checkpoint"),
        (b'{"format": "gristmill-checkpoint", "version": 99}', "unsupported version 99. This Gristmill reads"),
        (b'{"format": "gristmill-checkpoint", "version": 1, "step": 1}', "checksum mismatch"),
    ],
)
def test_a_foreign_state_is_refused(tmp_path, content, message):
    folder = write(tmp_path, 1)
    (folder / "state.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_state(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": True}, "step is True"),
        ({"step": None}, "step is None"),
        ({"files": None}, "files is None"),
        ({"files": []}, r"files is \[\]"),
        ({"files": {"model.safetensors": 7}}, "the entry of 'model.safetensors' has no size or no checksum"),
        ({"files": {"model.safetensors": {"bytes": "7", "xxh64": "0"}}}, "no size or no checksum"),
        ({"files": {"model.part-/../../x.safetensors": {}}}, "which is not a file in this folder"),
        ({"files": {"..\\x": {}}}, "which is not a file in this folder"),
        ({"files": {"model.part-\ud800.safetensors": {}}}, "which is not a file in this folder"),
        ({"files": {f"model.part-{'1' * 40_000}.safetensors": {}}}, "which is not a file in this folder"),
        ({"val_loss": [1]}, r"val_loss is \[1\]"),
        ({"val_loss": "1"}, "val_loss is '1'"),
        ({"config": [{}]}, r"config is \[{}\]"),
        ({"optimizer": 1}, "optimizer is 1"),
    ],
)
def test_a_forged_state_with_a_correct_checksum_is_an_error_of_its_structure(tmp_path, changes, message):
    folder = write(tmp_path, 1, val_loss=2.0)
    write(tmp_path, 2, val_loss=1.0)
    state = {**read_state(folder), **changes}
    checkpoints._write_state(folder / "state.json", state)
    with pytest.raises(CheckpointError, match=f"state.json: .*{message}.*the checkpoint is damaged"):
        read_state(folder)
    with pytest.warns(UserWarning, match="skipped damaged checkpoints: step-000001"):
        assert find_checkpoint(tmp_path, "best").name == "step-000002"
    assert prune(tmp_path, keep=1) == [folder]


@pytest.mark.parametrize("replacement", ["pipe", "device"])
def test_weights_that_are_a_pipe_or_device_are_refused_without_reading_them(tmp_path, replacement):
    folder = write(tmp_path, 1)
    state, weights = read_state(folder), folder / "model.safetensors"
    state["files"]["model.safetensors"]["bytes"] = 0
    checkpoints._write_state(folder / "state.json", state)
    weights.unlink()
    os.mkfifo(weights) if replacement == "pipe" else weights.symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: not a regular file: the checkpoint is damaged"):
        checkpoints.read_tensors(folder, "model.safetensors", read_state(folder))


def test_the_best_of_checkpoints_without_a_config_is_found(tmp_path):
    for step, loss in ((1, 1.0), (2, 2.0)):
        folder = write(tmp_path, step, val_loss=loss)
        checkpoints._write_state(folder / "state.json", {**read_state(folder), "config": None})
    assert find_checkpoint(tmp_path, "best").name == "step-000001"


def test_a_renamed_checkpoint_is_refused(tmp_path):
    folder = write(tmp_path, 1)
    folder.rename(folder.with_name("step-000009"))
    with pytest.raises(CheckpointError, match="has step 1, but the folder is of step 9"):
        read_state(find_checkpoint(tmp_path))


def test_the_latest_is_by_number_and_half_written_ones_are_not_seen(tmp_path):
    for step in (2, 10, 1_000_000):
        write(tmp_path, step)
    (tmp_path / "checkpoints" / ".step-2000000.tmp.1").mkdir()
    (tmp_path / "checkpoints" / "notes").mkdir()
    assert [checkpoints.step_of(folder) for folder in list_checkpoints(tmp_path)] == [2, 10, 1_000_000]
    assert find_checkpoint(tmp_path).name == "step-1000000"


def test_the_best_is_kept_beside_the_latest(tmp_path):
    for step, loss in ((1, 3.0), (2, 1.0), (3, None), (4, 2.0), (5, 2.5)):
        write(tmp_path, step, val_loss=loss)
        prune(tmp_path, keep=2)
    assert [folder.name for folder in list_checkpoints(tmp_path)] == ["step-000002", "step-000004", "step-000005"]
    assert find_checkpoint(tmp_path, "best").name == "step-000002"
    assert find_checkpoint(tmp_path, "step-000004").name == "step-000004"
    with pytest.raises(CheckpointError, match=r"no checkpoint 'step-9'. Pass 'latest', 'best', or one of step-000002"):
        find_checkpoint(tmp_path, "step-9")


def test_no_checkpoint_says_how_to_get_one(tmp_path):
    with pytest.raises(CheckpointError, match=r"this is not the folder of a run.* Train a model"):
        find_checkpoint(tmp_path)


def damage(folder):
    (folder / "state.json").write_bytes(b'{"format": ')


def test_a_damaged_old_checkpoint_does_not_stop_a_healthy_run_and_is_reported_once(tmp_path):
    damage(write(tmp_path, 1, val_loss=1.0))
    reported = []
    writer = CheckpointWriter(tmp_path, keep=1, notify=reported.append)
    for step, loss in ((2, 2.0), (3, 3.0), (4, 4.0)):
        writer.write({"step": step, "val_loss": loss}, {"model.safetensors": TENSORS})
    writer.close()
    assert [folder.name for folder in list_checkpoints(tmp_path)] == ["step-000001", "step-000002", "step-000004"]
    assert len(reported) == 1 and "step-000001 is damaged" in reported[0]


def test_a_damaged_checkpoint_does_not_count_among_those_that_are_kept(tmp_path):
    write(tmp_path, 1)
    write(tmp_path, 2)
    damage(write(tmp_path, 3))
    damage(write(tmp_path, 4))
    prune(tmp_path, keep=1)
    assert [checkpoints.step_of(folder) for folder in list_checkpoints(tmp_path)] == [2, 3, 4]


def test_best_passes_over_damaged_checkpoints_with_a_warning(tmp_path):
    write(tmp_path, 1, val_loss=2.0)
    damage(write(tmp_path, 2, val_loss=1.0))
    with pytest.warns(UserWarning, match=r"skipped damaged checkpoints: step-000002\. Using step-000001"):
        assert find_checkpoint(tmp_path, "best").name == "step-000001"
    damage(tmp_path / "checkpoints/step-000001")
    with pytest.raises(CheckpointError, match=r"step-000002/state\.json.*damaged"):
        find_checkpoint(tmp_path, "best")


def test_a_damaged_checkpoint_names_the_one_before_it(tmp_path):
    first, second = write(tmp_path, 5), write(tmp_path, 10)
    damage(first)
    damage(second)
    with pytest.raises(CheckpointError, match=r"Remove .*step-000010 to use the previous one, step-000005"):
        read_state(second)
    with pytest.raises(CheckpointError, match=r"There is no earlier checkpoint: remove .*step-000005"):
        read_state(first)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_that_are_not_finite_never_replace_those_that_are(tmp_path, bad, dtype):
    good = torch.ones(3, dtype=dtype)
    writer = CheckpointWriter(tmp_path, keep=1)
    writer.write({"step": 1}, {"model.safetensors": {"a": good, "b": good}})
    writer.write({"step": 2}, {"model.safetensors": {"a": good, "b": good.clone().index_fill(0, torch.tensor(1), bad)}})
    with pytest.raises(NotFiniteError, match=r"step 2 are not finite: 'b'.*last good checkpoint is step-000001"):
        writer.close()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]
    assert torch.equal(load_file(tmp_path / "checkpoints/step-000001/model.safetensors")["b"], good)


def test_a_mask_of_minus_infinity_is_no_broken_weight(tmp_path):
    mask = torch.full((3, 3), float("-inf")).triu(1)
    folder = write(tmp_path, 1, tensors={"mask": mask})
    assert torch.equal(load_file(folder / "model.safetensors")["mask"], mask)


@pytest.mark.parametrize("call", range(1, 6))
def test_a_full_disk_leaves_the_checkpoint_before_and_nothing_else(tmp_path, monkeypatch, call):
    write(tmp_path, 1)
    calls = []
    real = os.fsync

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    if call <= 3:  # two files and the folder; the fourth is the parent folder, when the checkpoint already exists
        with pytest.raises(OSError, match="No space"):
            write(tmp_path, 2)
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]
    read_state(find_checkpoint(tmp_path))


def test_the_writer_raises_in_the_run_what_went_wrong_in_its_thread(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = CheckpointWriter(tmp_path, keep=2)
    monkeypatch.setattr(checkpoints, "write_tensors", fail)
    writer.write({"step": 1}, {"model.safetensors": TENSORS})
    with pytest.raises(OSError, match="No space"):
        writer.wait()
    writer.close()


def test_weights_of_another_model_are_refused_by_name(tmp_path):
    model = torch.nn.Linear(3, 2)
    good = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    load_weights(model, good, tmp_path)
    with pytest.raises(CheckpointError, match="'bias' is missing"):
        load_weights(model, {"weight": good["weight"]}, tmp_path)
    with pytest.raises(CheckpointError, match="'extra' is not part of this model"):
        load_weights(model, {**good, "extra": good["bias"]}, tmp_path)
    with pytest.raises(CheckpointError, match=r"'weight' has shape \[2, 4\] in the file and \[2, 3\] in the model"):
        load_weights(model, {**good, "weight": torch.zeros(2, 4)}, tmp_path)


def test_nothing_in_a_checkpoint_is_pickle(tmp_path):
    folder = write(tmp_path, 1)
    json.loads((folder / "state.json").read_bytes())
    header = (folder / "model.safetensors").read_bytes()
    json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])


def test_another_tokenizer_is_described_by_what_differs(tmp_path):
    before, now = gm.Tokenizer([(b"a", b"b")]), gm.Tokenizer([(b"a", b"b"), (b"ab", b"c")])
    before.save(tmp_path / "tokenizer.json")
    there, here = {"tokenizer_fingerprint": before.fingerprint}, {"tokenizer_fingerprint": now.fingerprint}
    (found,) = identity_differences(there, here, run=tmp_path, tokenizer=now)
    assert found == ("the tokenizer is different (vocab_size was 257 and is now 258, merge 1 is new: b'ab' + b'c')")
    now.save(tmp_path / "tokenizer.json", overwrite=True)  # not that of the checkpoint
    (found,) = identity_differences(there, here, run=tmp_path, tokenizer=now)
    assert before.fingerprint[:12] in found and now.fingerprint[:12] in found
