"""metrics.jsonl, and the writers that send the same numbers to loggers."""

import json
import math
import sys

import pytest

from gristmill import MissingPackageError
from gristmill.lm.training.records import MetricsFile, read_records
from gristmill.lm.training.writers import open_writer


def test_records_beyond_the_step_of_a_resume_are_dropped_and_a_torn_line_too(tmp_path):
    file = MetricsFile(tmp_path)
    for step in (1, 2, 3):
        file.add({"kind": "train", "step": step, "loss": 0.5})
    file.close()
    with (tmp_path / "metrics.jsonl").open("ab") as torn:
        torn.write(b'{"kind": "train", "st')
    file = MetricsFile(tmp_path, up_to_step=2)
    file.add({"kind": "event", "step": 2, "message": "on"})
    file.close()
    assert [(r["kind"], r["step"]) for r in read_records(tmp_path)] == [("train", 1), ("train", 2), ("event", 2)]


def test_a_loss_that_is_not_a_number_is_null_in_the_file(tmp_path):
    file = MetricsFile(tmp_path)
    file.add({"kind": "train", "step": 1, "loss": math.nan})
    file.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_bytes())["loss"] is None


def test_an_infinite_number_inside_a_list_of_an_edited_file_becomes_null(tmp_path):
    line = b'{"kind": "train", "step": 1, "loss": 0.5, "parts": [{"a": -1e999}, 2.0]}\n'
    (tmp_path / "metrics.jsonl").write_bytes(line)
    MetricsFile(tmp_path, up_to_step=1).close()
    assert (tmp_path / "metrics.jsonl").read_bytes() == line.replace(b"-1e999", b"null")


def test_tensorboard_gets_the_same_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    writer = open_writer("tensorboard", tmp_path, {})
    writer.add({"kind": "train", "step": 1, "loss": 0.5, "mfu": None})
    writer.add({"kind": "sample", "step": 1, "prompt": "a", "text": "b"})
    writer.close()
    assert list((tmp_path / "tensorboard").iterdir())
    assert open_writer("none", tmp_path, {}) is None


def test_a_writer_that_is_not_installed_is_an_error_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(MissingPackageError, match="trackio, which is not installed"):
        open_writer("trackio", tmp_path, {})
