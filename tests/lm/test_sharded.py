"""Sharded weights: several processes give the same results as one, bit-exactly or up to rounding.

The checks are in sharded_checks.py. They run once in two and once in three processes, which take seconds to start; the
tests judge what each process answered. The three also read what the two have saved, and what one has.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import gristmill as gm
from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training.checkpoint import (
    find_checkpoint,
    load_model,
    merge_model,
    read_state,
    read_tensors,
    write_checkpoint,
)
from lm import sharded_checks
from lm.tiny_runs import records, train
from scripts import run_script

SIZES = (2, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of all checks, with a checkpoint written by one process."""
    folder = tmp_path_factory.mktemp("sharded")
    (folder / "saved-by-1").mkdir()
    model = sharded_checks.new_model()
    optimizers, expected = sharded_checks.after_steps(model)
    state, files = sharded_checks.files_of(model, optimizers)
    write_checkpoint(folder / "saved-by-1", {**state, "step": 3}, files)
    save_file(expected, folder / "expected-1.safetensors")
    for size in SIZES:
        run_checks(folder, size)
    return folder


def run_checks(folder, size):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    commands = [[sys.executable, "-m", "lm.sharded_checks", str(folder), str(rank), str(size)] for rank in range(size)]
    processes = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        errors = [process.communicate(timeout=180)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * size, "\n".join(errors)[-5000:]


@pytest.fixture(params=SIZES)
def size(request):
    return request.param


def answers(folder, size, check):
    """Return the results of the processes, in order of rank."""
    return [json.loads((folder / f"answer-{size}-{rank}.json").read_text())[check] for rank in range(size)]


# Muon


def test_muon_of_several_processes_is_that_of_one(folder, size):
    for answer in answers(folder, size, "muon"):
        assert answer["replicated"] < 1e-6
        assert answer["sharded"] < 1e-6


def test_replicas_stay_bit_identical_under_muon(folder, size):
    assert all(answer["replicated is the same"] for answer in answers(folder, size, "muon"))


def test_the_momentum_of_muon_is_divided_as_the_weights_are(folder, size):
    shares = {2: [5, 5], 3: [4, 4, 2]}
    assert [answer["rows of momentum"] for answer in answers(folder, size, "muon")] == shares[size]


# Gradients


def test_a_nan_in_the_rows_of_one_process_keeps_all_from_stepping(folder, size):
    for answer in answers(folder, size, "not_finite"):
        assert answer["left alone, waits=True"] and answer["left alone, waits=False"]
        assert answer["are_finite"] is False


def test_gradients_in_parts_are_clipped_by_the_norm_of_the_whole(folder, size):
    for answer in answers(folder, size, "not_finite"):
        assert answer["norm"] < 1e-5 and answer["clipped"] < 1e-6


# Checkpoints


def test_every_process_writes_a_part_and_one_of_them_the_state(folder, size):
    parts = [f"part-{rank + 1:05d}-of-{size:05d}.safetensors" for rank in range(size)]
    files = {"state.json", *(f"{name}.{end}" for name in ("model", "optimizer") for end in (*parts, "parts.json"))}
    for answer in answers(folder, size, "checkpoint"):
        assert answer["files"] == sorted(files)


def test_the_best_and_the_latest_are_kept_while_training_continues(folder, size):
    for answer in answers(folder, size, "checkpoint"):
        assert answer["kept"] == ["step-000001", "step-000003"]
    assert find_checkpoint(folder / f"saved-by-{size}", "best").name == "step-000001"


@pytest.mark.parametrize(("before", "size"), [(1, 2), (1, 3), (2, 2), (2, 3), (3, 3)])
def test_any_number_of_processes_reads_a_checkpoint_of_another_number_bit_exactly(folder, before, size):
    assert all(answer[f"read from {before}"] for answer in answers(folder, size, "checkpoint"))


def test_one_process_reads_the_parts_of_several_to_the_bit(folder, size):
    there = find_checkpoint(folder / f"saved-by-{size}")
    found = {}
    for file in ("model.safetensors", "optimizer.safetensors"):
        found |= read_tensors(there, file, read_state(there))
    expected = load_file(folder / f"expected-{size}.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_no_process_writes_the_rows_of_another(folder, size):
    """Except for headers, the parts together are as large as the tensors: nothing is stored twice."""
    there = find_checkpoint(folder / f"saved-by-{size}")
    parts = [load_file(path) for path in there.glob("model.part-*")]
    whole = read_tensors(there, "model.safetensors", read_state(there))
    for name, tensor in whole.items():
        assert sum(part[name].numel() for part in parts if name in part) == tensor.numel()


@pytest.mark.parametrize("check", ["full disk", "full disk of the first"])
def test_a_full_disk_of_one_process_is_the_error_of_all(folder, size, check):
    """All processes raise it, and only the first one shows it."""
    for rank, answer in enumerate(answers(folder, size, "failures")):
        kind, message, is_shown_by_first = answer[check]
        assert kind == "OSError" and "No space left on device" in message and f"failed-by-{size}" in message
        assert is_shown_by_first == (rank > 0)


def test_weights_that_are_not_finite_in_one_process_are_refused_by_all(folder, size):
    for answer in answers(folder, size, "failures"):
        kind, message, _ = answer["not finite"]
        assert kind == "NotFiniteError" and "'stacked' contains NaN" in message


def test_a_save_that_failed_leaves_the_checkpoint_before_and_nothing_else(folder, size):
    assert all(answer["there"] == ["step-000000", "step-000001"] for answer in answers(folder, size, "failures"))


def test_a_checkpoint_before_the_first_step_has_an_optimizer_without_state(folder, size):
    assert all(answer["before a step"] == [] for answer in answers(folder, size, "failures"))


def test_a_damaged_part_is_named_by_all_processes(folder, size):
    for answer in answers(folder, size, "failures"):
        kind, message, _ = answer["damaged"]
        assert kind == "CheckpointError"
        assert f"model.part-{size:05d}-of-{size:05d}.safetensors: checksum mismatch" in message
        assert "to use the previous one, step-000000" in message


def test_parts_become_one_file_that_is_the_same_as_that_of_one_process(folder, size):
    there = find_checkpoint(folder / f"saved-by-{size}", "step-000001")
    before = read_tensors(there, "model.safetensors", read_state(there))
    assert merge_model(there)
    (there / "model.parts.json").write_text("of a merge that was killed")
    (there / f"model.part-00001-of-{size:05d}.safetensors").write_text("of a merge that was killed")
    assert not merge_model(there)
    assert not list(there.glob("model.part*")) and list(there.glob("optimizer.part*"))
    checkpoints.check_file(there / "model.safetensors", read_state(there)["files"]["model.safetensors"])
    after = load_file(there / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


# Precision


def test_blocks_compute_in_bf16_and_weights_stay_float32(folder, size):
    for answer in answers(folder, size, "bf16"):
        assert answer["in a block"] == "torch.bfloat16"
        assert answer["loss"] == "torch.float32"
        assert answer["kept"] == ["torch.float32"]


def test_a_sharded_model_in_bf16_has_the_curve_of_one_in_one_piece(folder, size):
    for answer in answers(folder, size, "bf16"):
        whole, sharded = answer["curves"]
        assert sharded == pytest.approx(whole, abs=2e-3)
        assert whole[-1] < whole[0] - 0.5  # the model learns, so the comparison is meaningful


# Runs

OPTIONS = {"max_steps": 8, "log_interval": 1, "checkpoint_interval": 4, "val_check_interval": 4, "keep": 3}
MUON = {**OPTIONS, "optimizer": "muon"}
TWO = {"devices": 2, "batch_size": 4}
TRAIN_IN_TWO = """
    import json, sys
    from lm.tiny_runs import train
    for out, options in json.loads(sys.argv[2]):
        train(sys.argv[1], out, **options)
"""


@pytest.fixture(scope="module")
def runs(tiny_shards, tmp_path_factory):
    """A run of one device, the same on two with each strategy, and its second half on two; all with Muon."""
    folder = tmp_path_factory.mktemp("runs")
    train(tiny_shards, folder / "one", batch_size=8, **MUON)
    without_last(folder / "one", folder / "back")
    jobs = [(str(folder / strategy), {**MUON, **TWO, "strategy": strategy}) for strategy in ("ddp", "fsdp")]
    jobs.append((str(folder / "back"), {**MUON, **TWO, "strategy": "fsdp", "resume": "auto"}))
    answer = run_script(TRAIN_IN_TWO, tiny_shards, json.dumps(jobs), environment={"OMP_NUM_THREADS": "1"})
    assert answer.returncode == 0, answer.stderr[-3000:]
    return folder


def without_last(run, copy):
    """A copy of the run as it was before its last checkpoint."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "checkpoints/step-000008")


def losses(run):
    return [record["loss"] for record in records(run, "train")]


@pytest.mark.parametrize("name", ["ddp", "fsdp", "back"])
def test_a_run_with_muon_on_two_devices_is_that_of_one(runs, name):
    assert losses(runs / name) == pytest.approx(losses(runs / "one"), abs=2e-5)


def test_the_last_checkpoint_of_a_run_is_merged_and_the_one_before_is_used_in_parts(runs):
    latest, before = (runs / "fsdp/checkpoints" / name for name in ("step-000008", "step-000004"))
    assert {"model.safetensors", "optimizer.parts.json"} <= {path.name for path in latest.iterdir()}
    assert not (latest / "model.parts.json").exists() and (before / "model.parts.json").exists()
    for which in ("step-000004", "step-000008"):
        one, two = (load_model(runs / name, which=which)[0].state_dict() for name in ("one", "fsdp"))
        for name in one:
            torch.testing.assert_close(one[name], two[name], atol=1e-4, rtol=1e-3)
    assert gm.lm.generate(runs / "fsdp", "the cat", which="step-000004", max_tokens=4, seed=0)


def test_one_device_resumes_the_run_of_two(tiny_shards, runs, tmp_path):
    without_last(runs / "fsdp", tmp_path / "run")
    alone = {"batch_size": 8, "devices": 1, "strategy": "auto", "resume": "auto"}
    train(tiny_shards, tmp_path / "run", **alone, **MUON)
    assert losses(tmp_path / "run") == pytest.approx(losses(runs / "one"), abs=2e-5)
    assert (tmp_path / "run/checkpoints/step-000008/optimizer.safetensors").exists()


def test_a_run_starts_with_weights_that_are_still_in_parts(tiny_shards, runs, tmp_path):
    without_last(runs / "fsdp", tmp_path / "old")
    train(tiny_shards, tmp_path / "new", init_from=str(tmp_path / "old"), **{**MUON, "max_steps": 1})
    assert losses(tmp_path / "new")[0] < losses(runs / "one")[0] - 0.1
