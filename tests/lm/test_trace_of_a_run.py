"""The trace of a training run: its phases, the thread of batches and the thread of checkpoints."""

from __future__ import annotations

import gristmill as gm
from lm.tiny_runs import train
from trace_checks import ReadTrace


def test_phases_of_a_run_are_spans_of_their_threads(tiny_shards, tmp_path):
    with gm.recording(tmp_path / "trace.json"):
        train(tiny_shards, tmp_path / "run", max_steps=4, val_check_interval=2, checkpoint_interval=2, log_interval=2)
    read = ReadTrace(tmp_path / "trace.json")
    steps = read.spans("step", "main")
    assert [span["args"]["step"] for span in steps] == [0, 1, 2, 3]
    names = read.names()
    phases = {"wait for data", "forward", "backward", "update weights", "log", "validation", "checkpoint"}
    assert phases <= names["main"]
    assert "make batch" in names["batches 0"]
    assert names["checkpoint 0"] == {"write checkpoint"}
    for name in ("forward", "backward", "update weights"):
        for span, step in zip(read.spans(name, "main"), steps, strict=True):
            assert step["ts"] <= span["ts"] and span["ts"] + span["dur"] <= step["ts"] + step["dur"] + 1e-3
