"""Ray Train: its TorchTrainer starts the processes, and `gm.lm.train` runs in them unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lm.tiny_runs import TINY, records, train

pytest.importorskip("ray")

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_train.py"
OPTIONS = {**TINY, "max_steps": 6, "log_interval": 1}


def test_two_workers_of_ray_train_have_the_losses_of_one_process(tiny_shards, tmp_path):
    (tmp_path / "tiny.yaml").write_text("".join(f"{name}: {value}\n" for name, value in OPTIONS.items()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    environment["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"  # saves one process that would import torch
    answer = subprocess.run(
        [sys.executable, EXAMPLE, tiny_shards, "-o", "two", "--config", "tiny.yaml", "--workers", "2"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    train(tiny_shards, tmp_path / "one", **{**OPTIONS, "batch_size": 2 * TINY["batch_size"]})
    losses = [[record["loss"] for record in records(tmp_path / run, "train")] for run in ("one", "two")]
    assert len(losses[0]) == 6
    assert losses[1] == pytest.approx(losses[0], abs=2e-5)
