"""Loggers: the numbers of metrics.jsonl in TensorBoard, CSV files, Weights & Biases and user loggers."""

from __future__ import annotations

import csv
import json
import math
import sys
import types

import pytest
from lightning_fabric.loggers import CSVLogger, TensorBoardLogger

from gristmill.lm.training.records import read_records
from gristmill.lm.training.writers import check_loggers, open_writer
from lm.tiny_runs import Crash, crash_at, train

SHORT = {"max_steps": 8, "checkpoint_interval": 4, "val_check_interval": 4, "log_interval": 2}


class Recording:
    """A user-defined logger with the methods of Lightning's loggers."""

    def __init__(self, fail_at=None):
        self.metrics, self.hyperparams, self.finalized, self._fail_at = [], None, 0, fail_at

    def log_metrics(self, metrics, step=None):
        if self._fail_at is not None and step >= self._fail_at:
            raise ConnectionError("the server is gone")
        self.metrics.append((step, metrics))

    def log_hyperparams(self, params):
        self.hyperparams = params

    def save(self):
        pass

    def finalize(self, status):
        self.finalized += 1


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def expected_losses(run, kind):
    return [(record["step"], record["loss"]) for record in read_records(run) if record["kind"] == kind]


def csv_losses(path, kind):
    rows = rows_of(path)
    return [(int(row["step"]), float(row[f"{kind}/loss"])) for row in rows if row[f"{kind}/loss"]]


def tensorboard_scalars(folder):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_a_csv_file_has_the_numbers_of_the_record(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", log="csv", **SHORT)
    for kind in ("train", "val"):
        assert csv_losses(tmp_path / "run" / "csv" / "metrics.csv", kind) == expected_losses(tmp_path / "run", kind)


def test_a_resumed_run_has_one_csv_file_as_if_it_had_not_been_interrupted(tiny_shards, tmp_path):
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "run", log="csv", progress=crash_at(6), **SHORT)
    train(tiny_shards, tmp_path / "run", log="csv", resume="auto", **SHORT)
    found = csv_losses(tmp_path / "run" / "csv" / "metrics.csv", "train")
    assert found == expected_losses(tmp_path / "run", "train")
    assert [step for step, _ in found] == [2, 4, 6, 8]


def test_tensorboard_has_the_numbers_once_though_the_run_was_interrupted(tiny_shards, tmp_path):
    pytest.importorskip("tensorboard")
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "run", log="tensorboard", progress=crash_at(6), **SHORT)
    train(tiny_shards, tmp_path / "run", log="tensorboard", resume="auto", **SHORT)
    scalars = tensorboard_scalars(tmp_path / "run" / "tensorboard")
    expected = expected_losses(tmp_path / "run", "train")
    assert [step for step, _ in scalars["train/loss"]] == [2, 4, 6, 8]
    assert [value for _, value in scalars["train/loss"]] == pytest.approx([loss for _, loss in expected])


def test_loggers_that_are_passed_get_every_number_and_the_options(tiny_shards, tmp_path):
    own, theirs = Recording(), CSVLogger(tmp_path / "logs", name="run", version="")
    train(tiny_shards, tmp_path / "run", loggers=[own, theirs], **SHORT)
    losses = [(step, metrics["train/loss"]) for step, metrics in own.metrics if "train/loss" in metrics]
    assert losses == expected_losses(tmp_path / "run", "train")
    assert csv_losses(tmp_path / "logs" / "run" / "metrics.csv", "train") == losses
    assert own.hyperparams["max_steps"] == 8 and own.finalized == 1
    assert "loggers" not in json.loads((tmp_path / "run" / "config.json").read_text())


def test_one_logger_need_not_be_in_a_list(tiny_shards, tmp_path):
    own = Recording()
    train(tiny_shards, tmp_path / "run", loggers=own, **SHORT)
    assert own.metrics


def test_a_logger_that_fails_is_left_out_with_one_message_and_the_run_ends_well(tiny_shards, tmp_path):
    failing, other = Recording(fail_at=4), Recording()
    result = train(tiny_shards, tmp_path / "run", loggers=[failing, other], **SHORT)
    reported = [record["message"] for record in read_records(tmp_path / "run") if record["kind"] == "event"]
    assert result.num_steps == 8
    assert [message for message in reported if "no longer used" in message] == [
        "the logger Recording failed and is no longer used: the server is gone. metrics.jsonl has all records."
    ]
    assert [step for step, _ in failing.metrics] == [2]
    assert {step for step, _ in other.metrics} == {2, 4, 6, 8}


def test_a_logger_that_cannot_be_opened_or_closed_does_not_end_the_run(tiny_shards, tmp_path):
    class Shut(Recording):
        def log_hyperparams(self, params):
            raise PermissionError("no key")

    class Stuck(Recording):
        def finalize(self, status):
            raise OSError("disk full")

    assert train(tiny_shards, tmp_path / "run", loggers=[Shut(), Stuck()], **SHORT).num_steps == 8
    messages = [record.get("message", "") for record in read_records(tmp_path / "run")]
    assert any("Shut failed and is no longer used: no key" in message for message in messages)


@pytest.mark.parametrize("wrong", ["csv", CSVLogger, 7, [None]])
def test_what_is_no_logger_is_refused_before_anything_is_written(tiny_shards, tmp_path, wrong):
    with pytest.raises(TypeError, match="is not a Lightning logger"):
        train(tiny_shards, tmp_path / "run", loggers=wrong, **SHORT)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["log_metrics", "log_hyperparams", "save", "finalize"])
def test_a_logger_that_lacks_a_method_which_a_run_calls_is_refused(method):
    others = {name: getattr(Recording, name) for name in dir(Recording) if not name.startswith("_") and name != method}
    with pytest.raises(TypeError, match="which is not a Lightning logger"):
        check_loggers(type("Partial", (), others)())


def test_samples_are_texts_in_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    writer = open_writer("tensorboard", tmp_path, {"max_steps": 1})
    writer.add({"kind": "sample", "step": 3, "prompt": "a", "text": "once upon"})
    writer.close()
    files = list((tmp_path / "tensorboard").iterdir())
    assert any(b"once upon" in file.read_bytes() for file in files)


def test_numbers_that_are_not_finite_do_not_stop_a_logger(tmp_path):
    writer = open_writer("csv", tmp_path, {})
    writer.add({"kind": "train", "step": 1, "loss": math.nan, "mfu": None})
    writer.close()
    assert rows_of(tmp_path / "csv" / "metrics.csv")[0]["train/loss"] == "nan"


def test_overwriting_a_run_removes_its_old_logs(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", log="csv", **SHORT)
    train(tiny_shards, tmp_path / "run", overwrite=True, **SHORT)
    assert not (tmp_path / "run" / "csv").exists()


def test_trackio_gets_numbers_with_their_step(monkeypatch, tmp_path):
    calls = []
    fake = types.ModuleType("trackio")
    fake.init = lambda **settings: calls.append(("init", settings["name"], settings["config"]))
    fake.log = lambda numbers: calls.append(("log", numbers))
    fake.finish = lambda: calls.append(("finish",))
    monkeypatch.setitem(sys.modules, "trackio", fake)
    writer = open_writer("trackio", tmp_path / "run", {"seed": 1})
    writer.add({"kind": "train", "step": 2, "loss": 0.5})
    writer.close()
    assert calls == [("init", "run", {"seed": 1}), ("log", {"train/loss": 0.5, "step": 2}), ("finish",)]


def test_wandb_offline_writes_one_run_that_a_resumed_run_continues(tiny_shards, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "run", log="wandb", progress=crash_at(6), **SHORT)
    first = (tmp_path / "run" / "wandb_id.txt").read_text()
    train(tiny_shards, tmp_path / "run", log="wandb", resume="auto", **SHORT)
    assert (tmp_path / "run" / "wandb_id.txt").read_text() == first
    stored = [path.name for path in (tmp_path / "run" / "wandb").glob("offline-run-*")]
    assert len(stored) == 2 and all(name.endswith(first) for name in stored)
    train(tiny_shards, tmp_path / "other", log="wandb", **SHORT)
    assert (tmp_path / "other" / "wandb_id.txt").read_text() != first


def test_the_tensorboard_logger_of_lightning_can_be_passed(tiny_shards, tmp_path):
    pytest.importorskip("tensorboard")
    train(tiny_shards, tmp_path / "run", loggers=[TensorBoardLogger(tmp_path / "logs", name="a", version="b")], **SHORT)
    scalars = tensorboard_scalars(tmp_path / "logs" / "a" / "b")
    assert [step for step, _ in scalars["train/loss"]] == [2, 4, 6, 8]
