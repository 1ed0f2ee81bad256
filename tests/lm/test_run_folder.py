"""An overwritten run is kept until the new one has a checkpoint, even if the new one fails."""

import contextlib
import shutil
import sys
from pathlib import Path

import pytest
import torch

import gristmill as gm
from faults.broken_runs import run_and_die
from gristmill.lm.training.checkpoint import list_checkpoints
from gristmill.lm.training.replacing import put_back, replacing
from gristmill.lm.training.run_folder import claimed
from lm.tiny_runs import Crash, train


@pytest.fixture(scope="module")
def finished(tiny_shards, tmp_path_factory):
    run = tmp_path_factory.mktemp("old") / "run"
    train(tiny_shards, run, max_steps=4)
    for name in ("report.html", "report.md", "plots/loss.png", "plots/posterior.jsonl", "tensorboard/events.1"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("old")
    (run / "notes.txt").write_text("mine")
    return run


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "run"))


def content(folder):
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items()}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param(
            {"device": "cuda"},
            gm.OptionError,
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here"),
            id="no GPU",
        ),
        pytest.param({"context_length": 10**8}, gm.TrainingError, id="a context that no text fills"),
        pytest.param({"init_from": "nowhere"}, gm.CheckpointError, id="no run to take weights from"),
        pytest.param({"log": "trackio"}, gm.MissingPackageError, id="a logger that is not installed"),
        pytest.param({"log": "tensorboard"}, gm.MissingPackageError, id="one that fails once files are open"),
    ],
)
def test_overwrite_keeps_the_old_run_if_the_new_one_does_not_start(tiny_shards, run, monkeypatch, options, error):
    monkeypatch.setitem(sys.modules, "trackio", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    before = content(run)
    with pytest.raises(error):
        train(tiny_shards, run, overwrite=True, **{"max_steps": 6, **options})
    assert content(run) == before


def test_overwrite_keeps_the_old_run_if_the_first_step_fails(tiny_shards, run, monkeypatch):
    def fail(self):
        raise Crash

    before = content(run)
    monkeypatch.setattr("gristmill.lm.training.run.Run.update_weights", fail)
    with pytest.raises(Crash):
        train(tiny_shards, run, overwrite=True, max_steps=6)
    assert content(run) == before


@pytest.mark.parametrize("place", ["run.are_finite", "checkpoint.write_checkpoint"], ids=["weights", "disk"])
def test_overwrite_keeps_the_old_run_if_the_first_checkpoint_is_not_written(tiny_shards, run, monkeypatch, place):
    def fail(*_):
        raise Crash

    before = content(run)
    monkeypatch.setattr(f"gristmill.lm.training.{place}", fail)
    with pytest.raises(Crash):
        train(tiny_shards, run, overwrite=True, max_steps=6, checkpoint_interval=2)
    assert content(run) == before


def test_overwrite_does_not_replace_what_the_attempt_before_a_restart_has_trained(tiny_shards, run, monkeypatch):
    before = content(run)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    message = r"torchrun has restarted .*step-000004.*resume='auto' and without overwrite=True"
    with pytest.raises(gm.OptionError, match=message):
        train(tiny_shards, run, overwrite=True, max_steps=6)
    assert content(run) == before
    train(tiny_shards, run, resume="auto", max_steps=6)
    assert list_checkpoints(run)[-1].name == "step-000006"


def test_overwrite_leaves_nothing_of_the_old_run_and_all_that_is_not_of_it(tiny_shards, run, tmp_path):
    train(tiny_shards, run, overwrite=True, max_steps=6, num_layers=1)
    train(tiny_shards, tmp_path / "new", max_steps=6, num_layers=1)
    assert content(run).keys() == content(tmp_path / "new").keys() | {"notes.txt"}
    assert [folder.name for folder in list_checkpoints(run)] == [f.name for f in list_checkpoints(tmp_path / "new")]
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


def test_overwrite_begins_at_step_0_with_new_weights(tiny_shards, run):
    seen = []
    train(tiny_shards, run, overwrite=True, max_steps=2, log_interval=1, progress=seen.append)
    assert [record["step"] for record in seen if record["kind"] == "train"] == [1, 2]


def test_the_run_that_gives_the_weights_cannot_be_the_one_that_is_replaced(tiny_shards, run, tmp_path):
    before = content(run)
    (tmp_path / "link").symlink_to(run)
    for path in (run, run / ".." / "run", tmp_path / "link"):
        with pytest.raises(
            gm.OptionError, match=r"init_from=.* is the run that overwrite=True replaces.*another folder"
        ):
            train(tiny_shards, run, overwrite=True, init_from=str(path))
    assert content(run) == before


NEW = {"config.json": b"new", "checkpoints/step-000001/state.json": b"new"}
OLD = {"config.json": b"1", "metrics.jsonl": b"2", "checkpoints/step-000004/state.json": b"3", "plots/a.png": b"4"}


def write(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def replace(run, *, fails):
    with contextlib.suppress(Crash), replacing(run, overwrite=True) as replacement:
        replacement.set_aside()
        write(run, NEW)
        if fails:
            raise Crash


@pytest.mark.parametrize("fails", [True, False])
def test_a_kill_at_any_moment_leaves_the_old_run_or_the_new_one(tmp_path, fails):
    """Kill the process at its first change of the folder, its second, …; the next run must restore the folder."""
    for step in range(60):
        run = tmp_path / str(step)
        write(run, OLD)
        was_killed = run_and_die(step, lambda run=run: replace(run, fails=fails))
        if not (was_killed and run_and_die(step // 2, lambda run=run: put_back(run))):
            put_back(run)
        with claimed(run, resume="auto", overwrite=False):
            found = content(run)
        del found[".lock"]
        assert found == OLD or (found == NEW and not fails), step
        if not was_killed:
            break
    assert step > 5 and not was_killed and found == (OLD if fails else NEW)


def test_the_old_run_can_be_used_while_the_new_one_is_set_up(tiny_shards, run):
    with pytest.raises(Crash), replacing(run, overwrite=True) as replacement:
        replacement.set_aside()
        with pytest.raises(gm.CheckpointError, match=r"The old run is complete in .*\.replaced: pass that folder"):
            gm.lm.evaluate(run, tiny_shards)
        assert gm.lm.evaluate(run / ".replaced", tiny_shards).num_tokens
        raise Crash
    assert gm.lm.evaluate(run, tiny_shards).num_tokens


def test_a_run_that_an_interrupted_overwrite_had_set_aside_is_not_started_over(tiny_shards, run):
    replacing(run, overwrite=True).__enter__().set_aside()
    with pytest.raises(FileExistsError, match="Already contains a run"):
        train(tiny_shards, run, max_steps=4)
    assert [folder.name for folder in list_checkpoints(run)] == ["step-000004"]


def test_a_link_in_the_folder_is_removed_and_what_it_points_to_stays(tmp_path):
    (tmp_path / "big disk").mkdir()
    (tmp_path / "big disk/precious").write_text("x")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").symlink_to(tmp_path / "big disk")
    with replacing(tmp_path / "run", overwrite=True) as replacement:
        replacement.set_aside()
    assert (tmp_path / "big disk/precious").read_text() == "x"
    assert list((tmp_path / "run").iterdir()) == []


def test_put_back_with_nothing_to_put_back_changes_nothing(run):
    before = content(run)
    put_back(run)
    assert content(run) == before


@pytest.mark.parametrize("resume", ["never", "auto"])
@pytest.mark.parametrize("name", ["plots", "checkpoints", ".aside", ".replaced"])
def test_a_run_with_a_planted_link_to_a_folder_changes_nothing_there(tiny_shards, run, tmp_path, name, resume):
    mine = tmp_path / "mine"
    (mine / "checkpoints").mkdir(parents=True)
    for file in ("a.png", "config.json", ".step-1", "checkpoints/x"):
        (mine / file).write_text("precious")
    before = content(mine)
    if (run / name).exists():
        (run / name).rename(run / "elsewhere")
    (run / name).symlink_to(mine)
    with pytest.raises(FileExistsError, match="symbolic link, which is not followed"):
        train(tiny_shards, run, resume=resume, overwrite=resume == "never", max_steps=6)
    with (
        pytest.raises(FileExistsError, match="symbolic link, which is not followed"),
        claimed(run, resume=resume, overwrite=resume == "never"),
    ):
        pass
    assert content(mine) == before
