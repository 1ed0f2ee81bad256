"""Checkpoints that cannot be written while the run computes further steps."""

from __future__ import annotations

import errno
import json
import time

import pytest

from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training.run import Run
from lm.launched_world import command, job, of_torchrun, outcomes, start_world
from lm.tiny_runs import train

OPTIONS = {"checkpoint_interval": 8, "log_interval": 2, "val_check_interval": 0, "max_steps": 24}
# The disk of the first process is full. Each step after a save starts only after the save has failed.
FULL_DISK = """
import errno
from gristmill.lm.training import checkpoint
def write(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
def save(self, real=Run.save):
    real(self)
    while rank == 0 and not self.saver.writer._pending.done():
        time.sleep(0.01)
checkpoint.write_checkpoint, Run.save = write, save
"""


def last_step(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return max(line["step"] for line in lines if line["kind"] == "train")


def test_a_run_ends_at_the_next_log_after_a_checkpoint_that_could_not_be_written(tiny_shards, tmp_path, monkeypatch):
    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def save(run, real=Run.save):
        real(run)
        while not run.saver.writer._pending.done():
            time.sleep(0.01)

    monkeypatch.setattr(checkpoints, "write_checkpoint", write)
    monkeypatch.setattr(Run, "save", save)
    with pytest.raises(OSError, match="No space left on device"):
        train(tiny_shards, tmp_path / "run", **OPTIONS)
    assert last_step(tmp_path / "run") == 8


def test_all_processes_end_with_the_error_of_the_one_that_could_not_write(tiny_shards, tmp_path):
    arguments = command(tmp_path, tiny_shards, [job(tmp_path / "run", **OPTIONS)], FULL_DISK)
    found = outcomes(start_world(arguments, 2, of_torchrun))
    errors = [tmp_path / f"run.error-{rank}" for rank in (0, 1)]
    assert all(path.exists() for path in errors), [error for _, _, error in found]
    assert all("No space left on device" in path.read_text() for path in errors)
    assert last_step(tmp_path / "run") == 8
