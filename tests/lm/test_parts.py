"""Parts of a checkpoint, tested without processes: the index is checked before any row is read."""

import json

import pytest
import torch
from safetensors.torch import save_file

from gristmill.errors import CheckpointError
from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training.checkpoint import find_checkpoint, merge_model, read_state, read_tensors
from gristmill.lm.training.parts import OpenFiles, stored_tensors
from gristmill.lm.training.tensor_files import file_checksum

WEIGHT = torch.arange(15.0).reshape(5, 3)
FIRST, SECOND = "model.part-00001-of-00002.safetensors", "model.part-00002-of-00002.safetensors"
INDEX = {
    "files": [FIRST, SECOND],
    "tensors": {
        "weight": {"dtype": "F32", "shape": [5, 3], "parts": [[0, 0, 3], [1, 3, 5]]},
        "scalar": {"dtype": "I64", "shape": [], "parts": [[1, 0, 1]]},
        "empty": {"dtype": "BF16", "shape": [0, 4], "parts": [[0, 0, 0]]},
    },
}


def write(run, index=INDEX, step=1, first=None):
    """Write a checkpoint in parts, with correct checksums for any index."""
    folder = run / "checkpoints" / f"step-{step:06d}"
    folder.mkdir(parents=True)
    save_file(first or {"weight": WEIGHT[:3].clone(), "empty": torch.zeros(0, 4).bfloat16()}, folder / FIRST)
    save_file({"weight": WEIGHT[3:].clone(), "scalar": torch.tensor(7)}, folder / SECOND)
    (folder / "model.parts.json").write_text(json.dumps(index))
    files = {path.name: {"bytes": path.stat().st_size, "xxh64": file_checksum(path)} for path in folder.iterdir()}
    state = {"format": checkpoints.FORMAT, "version": 2, "step": step, "val_loss": None, "files": files}
    checkpoints._write_state(folder / "state.json", state)
    return folder


def read(folder):
    return read_tensors(folder, "model.safetensors", read_state(folder))


def test_rows_of_several_files_become_one_tensor(tmp_path):
    found = read(write(tmp_path))
    assert torch.equal(found["weight"], WEIGHT)
    assert found["scalar"].item() == 7 and found["empty"].shape == (0, 4)


def test_only_the_rows_that_are_needed_are_read(tmp_path):
    folder = write(tmp_path)
    stored = stored_tensors(folder, "model.safetensors", read_state(folder)["files"])["weight"]
    (folder / FIRST).unlink()
    with OpenFiles(folder) as files:
        assert torch.equal(files.rows("weight", stored, stored.rows[1], 4, 5), WEIGHT[4:5])


def test_the_merged_file_is_the_one_that_a_single_process_writes(tmp_path):
    folder = write(tmp_path / "parts")
    whole = {"weight": WEIGHT, "scalar": torch.tensor(7), "empty": torch.zeros(0, 4).bfloat16()}
    alone = checkpoints.write_checkpoint(new(tmp_path / "one"), {"step": 1}, {"model.safetensors": whole})
    merge_model(folder)
    assert (folder / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "state.json"]


def new(folder):
    folder.mkdir()
    return folder


def test_a_merge_without_space_leaves_the_parts(tmp_path, monkeypatch):
    folder = write(tmp_path)

    def fail(path, *_):
        path.write_bytes(b"some")
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoints, "write_tensors", fail)
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(OSError, match="No space"):
        merge_model(folder)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert torch.equal(read(folder)["weight"], WEIGHT)


def test_a_damaged_part_is_not_merged(tmp_path):
    folder = write(tmp_path)
    data = bytearray((folder / SECOND).read_bytes())
    data[-1] ^= 1
    (folder / SECOND).write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"{SECOND}: checksum mismatch"):
        merge_model(folder)
    assert not (folder / "model.safetensors").exists()


@pytest.mark.parametrize("name", [FIRST, SECOND, "model.parts.json"])
def test_a_missing_file_is_named(tmp_path, name):
    folder = write(tmp_path)
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=rf"{name}: missing"):
        read(folder)


def changed(**of_weight):
    return {**INDEX, "tensors": {**INDEX["tensors"], "weight": {**INDEX["tensors"]["weight"], **of_weight}}}


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([], "not an index of parts"),
        ({"files": []}, "not an index of parts"),
        (changed(dtype="F8"), "not an index of parts"),
        (changed(parts=[[0, 0, 3], [2, 3, 5]]), "not an index of parts"),
        ({**INDEX, "files": [FIRST, "../../secret"]}, "'../../secret', which is not a part"),
        ({**INDEX, "files": [FIRST, "a" * 40_000]}, "lists 'a{990,1000}…: the checkpoint is damaged"),
        (changed(parts=[[0, 0, 3]]), "do not contain each row of 'weight' exactly once"),
        (changed(parts=[[0, 0, 3], [1, 2, 5]]), "do not contain each row of 'weight' exactly once"),
        (changed(parts=[[1, 3, 5], [0, 0, 3]]), "do not contain each row of 'weight' exactly once"),
        (changed(parts=[]), "do not contain each row of 'weight' exactly once"),
        (changed(shape=[6, 3], parts=[[0, 0, 3], [0, 3, 6]]), "do not contain each row of 'weight' exactly once"),
        (changed(shape=[5, 2]), r"'weight' is torch.float32 \[3, 3\] instead of torch.float32 \[3, 2\]"),
        (changed(shape=[10**12, 3], parts=[[0, 0, 3], [1, 3, 10**12]]), "instead of"),
        (changed(dtype="F64"), "instead of torch.float64"),
    ],
)
def test_a_forged_index_is_refused_before_memory_is_taken(tmp_path, index, message):
    with pytest.raises(CheckpointError, match=message):
        read(write(tmp_path, index))


def test_a_part_without_a_tensor_of_the_index_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=f"{FIRST}: has no 'weight'"):
        read(write(tmp_path, first={"empty": torch.zeros(0, 4).bfloat16()}))


def test_parts_count_among_the_checkpoints_that_are_kept(tmp_path):
    for step in (1, 2, 3):
        write(tmp_path, step=step)
    checkpoints.prune(tmp_path, keep=1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000003"]
    assert find_checkpoint(tmp_path, "best").name == "step-000003"
