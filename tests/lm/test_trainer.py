"""The trainer: files of a run, its messages, and its errors."""

import gc
import json
import math
import os
import signal

import pytest
import torch

import gristmill as gm
from gristmill import NotFiniteError, OptionError, TrainingError
from gristmill.lm.models.gpt.network import GPT
from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training.auto_batch import find_batch_size, largest_that_fits
from gristmill.lm.training.checkpoint import list_checkpoints, load_model, read_state
from gristmill.lm.training.config import load_config
from gristmill.lm.training.schedules import step_seed
from lm.tiny_runs import TINY, Crash, build_shards, crash_at, records, tensors, train


def test_a_run_leaves_its_whole_record(tiny_shards, tmp_path):
    result = train(tiny_shards, tmp_path / "run", sample_interval=10, sample_tokens=5)
    run = tmp_path / "run"
    assert {path.name for path in run.iterdir()} == {
        "config.json",
        "machine.json",
        "metrics.jsonl",
        "tokenizer.json",
        "checkpoints",
    }
    assert [r["step"] for r in records(run, "train")] == [4, 8, 12, 16, 20]
    assert [(r["step"], r["full"]) for r in records(run, "val")] == [(10, False), (20, False), (20, True)]
    assert [r["step"] for r in records(run, "sample")] == [10, 20]
    train_record = json.loads((run / "metrics.jsonl").read_text().splitlines()[1])
    assert set(train_record) == {
        *("kind", "step", "loss", "lr", "grad_norm", "grad_norm_max", "tokens", "tokens_per_second", "mfu"),
        *("mfu_matmul", "data_wait", "memory_bytes", "seconds"),
    }
    assert train_record["tokens"] == 4 * 4 * 16
    assert load_config(run).max_steps == 20
    assert json.loads((run / "machine.json").read_bytes())["torch"] == torch.__version__
    assert gm.Tokenizer.load(run / "tokenizer.json").fingerprint == gm.Shards(tiny_shards).tokenizer.fingerprint
    assert (result.num_steps, result.num_tokens, result.checkpoint.name) == (20, 20 * 64, "step-000020")
    assert result.val_loss == records(run, "val")[-1]["loss"]
    assert (result.mfu, result.mfu_matmul) == (None, None)  # a CPU has no peak to compare with
    assert result.tokens_per_second > 0


def test_the_loss_falls(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=60, learning_rate=1e-2)
    losses = [r["loss"] for r in records(tmp_path / "run", "train")]
    assert losses[0] > 5
    assert losses[-1] < losses[0] - 1.5


def test_the_learning_rate_is_the_schedules(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", log_interval=1, warmup_steps=4, max_steps=8, learning_rate=1e-3)
    rates = [r["lr"] for r in records(tmp_path / "run", "train")]
    assert rates[:4] == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3])
    assert rates[-1] == pytest.approx(1e-4)


def test_accumulation_is_the_same_step_in_smaller_portions(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "whole", max_steps=5, log_interval=1, batch_size=8)
    train(tiny_shards, tmp_path / "parts", max_steps=5, log_interval=1, batch_size=2, gradient_accumulation_steps=4)
    whole, parts = ([r["loss"] for r in records(tmp_path / name, "train")] for name in ("whole", "parts"))
    assert whole == pytest.approx(parts, abs=1e-5)
    for name, tensor in tensors(tmp_path / "whole", 5).items():
        torch.testing.assert_close(tensor, tensors(tmp_path / "parts", 5)[name], atol=1e-4, rtol=1e-3)


def test_the_record_does_not_depend_on_how_often_it_is_written(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "one", log_interval=1, max_steps=6)
    train(tiny_shards, tmp_path / "six", log_interval=6, max_steps=6)
    each = [r["loss"] for r in records(tmp_path / "one", "train")]
    assert records(tmp_path / "six", "train")[0]["loss"] == pytest.approx(sum(each) / 6, abs=1e-12)


def test_steps_that_fill_no_interval_are_recorded_at_the_end(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=6, log_interval=4)
    assert [r["step"] for r in records(tmp_path / "run", "train")] == [4, 6]


def test_checkpoints_are_the_latest_and_the_best(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=12, checkpoint_interval=2, val_check_interval=5, keep=2)
    kept = [checkpoints.step_of(folder) for folder in list_checkpoints(tmp_path / "run")]
    assert kept[-2:] == [10, 12]
    vals = {r["step"]: r["loss"] for r in records(tmp_path / "run", "val") if not r["full"]}
    best = min(vals, key=vals.get)
    assert read_state(checkpoints.find_checkpoint(tmp_path / "run", "best"))["step"] == best
    model, config = load_model(tmp_path / "run")
    assert isinstance(model, GPT)
    assert not model.training
    assert config.model.vocab_size == 300


def test_without_a_validation_split_it_says_so_and_trains(tmp_path):
    shards = build_shards(tmp_path / "shards", val=False)
    reported = []
    result = train(shards, tmp_path / "run", max_steps=3, progress=reported.append)
    assert (result.val_loss, result.bits_per_byte) == (None, None)
    assert any("no validation split" in record.get("message", "") for record in reported)


def test_a_validation_split_shorter_than_a_window_is_reported_and_skipped(tmp_path):
    shards = build_shards(tmp_path / "shards", number=400)
    reported = []
    result = train(shards, tmp_path / "run", max_steps=1, context_length=1000, batch_size=1, progress=reported.append)
    assert result.val_loss is None
    assert any("no validation: in the validation split there are" in record.get("message", "") for record in reported)


def test_a_run_that_left_no_checkpoint_leaves_no_records_to_the_next(tiny_shards, tmp_path):
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "run", progress=crash_at(4))
    train(tiny_shards, tmp_path / "run", max_steps=4)
    assert [r["step"] for r in records(tmp_path / "run", "train")] == [4]
    assert len(records(tmp_path / "run", "event")) == 1


def test_options_go_on_top_of_a_config(tiny_shards, tmp_path):
    config = gm.lm.TrainConfig.from_options({**TINY, "max_steps": 50})
    result = gm.lm.train(tiny_shards, out=tmp_path / "run", config=config, max_tokens=2 * 64, progress=None)
    assert result.num_steps == 2


def test_auto_precision_is_resolved_and_reported(tiny_shards, tmp_path):
    reported = []
    train(tiny_shards, tmp_path / "run", max_steps=1, progress=reported.append)
    assert reported[0]["message"] == "precision auto: 32 on cpu."
    assert load_config(tmp_path / "run").precision == "32"


def test_a_folder_with_a_run_is_not_touched_without_being_asked(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=2)
    with pytest.raises(FileExistsError, match=r"last checkpoint: step-000002.*resume='auto'.*overwrite=True"):
        train(tiny_shards, tmp_path / "run", max_steps=3)
    assert train(tiny_shards, tmp_path / "run", max_steps=3, overwrite=True).num_steps == 3
    with pytest.raises(OptionError, match="exclude each other"):
        train(tiny_shards, tmp_path / "run", max_steps=3, overwrite=True, resume="auto")
    with pytest.raises(OptionError, match="resume='yes' is not valid"):
        train(tiny_shards, tmp_path / "run", max_steps=3, resume="yes")


# Errors


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(tiny_shards, tmp_path, monkeypatch):
    real = GPT.loss
    calls = []

    def loss(self, batch, schedule):
        value, stats = real(self, batch, schedule)
        if self.training:
            calls.append(1)
        bad = len(calls) == 8
        return (value * math.nan, {"loss": stats["loss"] * math.nan}) if bad else (value, stats)

    monkeypatch.setattr(GPT, "loss", loss)
    with pytest.raises(
        NotFiniteError, match=r"step 8 is NaN or infinite.*step-000005 is the last good.*a lower learning_rate"
    ):
        train(tiny_shards, tmp_path / "run", checkpoint_interval=5, val_check_interval=0, log_interval=20)
    assert [folder.name for folder in list_checkpoints(tmp_path / "run")] == ["step-000005"]
    assert "step 8" in records(tmp_path / "run", "event")[-1]["message"]
    monkeypatch.setattr(GPT, "loss", real)
    assert train(
        tiny_shards, tmp_path / "run", checkpoint_interval=5, val_check_interval=0, log_interval=20, resume="auto"
    ).num_steps


def test_out_of_memory_names_what_helps_in_order(tiny_shards, tmp_path, monkeypatch):
    def loss(self, batch, schedule):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    monkeypatch.setattr(GPT, "loss", loss)
    with pytest.raises(TrainingError, match=r"batch_size=4.*batch_size='auto'.*accumulation.*precision='bf16-mixed'"):
        train(tiny_shards, tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"device": "cuda", "devices": 64}, "is not available to torch on this machine|is more than the")],
)
def test_devices_that_are_not_there_are_refused(tiny_shards, tmp_path, options, message):
    with pytest.raises(OptionError, match=message):
        train(tiny_shards, tmp_path / "run", **options)


def test_too_few_tokens_for_one_window_are_refused(tiny_shards, tmp_path):
    with pytest.raises(TrainingError, match="one window of context_length=100,000 needs"):
        train(tiny_shards, tmp_path / "run", context_length=100_000)


def test_an_unknown_model_names_those_there_are(tiny_shards, tmp_path):
    with pytest.raises(OptionError, match=r"model='rnn' is not valid. Pass one of 'gpt'"):
        train(tiny_shards, tmp_path / "run", model="rnn")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_step_it_came_in_and_acts_afterwards(tiny_shards, tmp_path, number):
    class Terminated(Exception):
        pass

    def terminate(*_):
        raise Terminated

    def show(record):
        if record["kind"] == "train" and record["step"] == 6:
            os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else Terminated):
            train(tiny_shards, tmp_path / "run", progress=show, log_interval=2)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert list_checkpoints(tmp_path / "run")[-1].name == "step-000006"
    assert "stopped at step 6" in records(tmp_path / "run", "event")[-1]["message"]
    train(tiny_shards, tmp_path / "run", log_interval=2, resume="auto")
    train(tiny_shards, tmp_path / "whole", log_interval=2)
    one, other = tensors(tmp_path / "run", 20), tensors(tmp_path / "whole", 20)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_garbage_collector_is_off_in_the_loop_and_on_afterwards(tiny_shards, tmp_path):
    states = []
    train(tiny_shards, tmp_path / "run", max_steps=4, progress=lambda record: states.append(gc.isenabled()))
    assert False in states
    assert gc.isenabled()
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "other", progress=crash_at(4))
    assert gc.isenabled()


@pytest.fixture
def nothing_frozen():
    """Unfreeze the objects that the test suite has frozen, as in a program that never freezes objects."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


def test_nothing_is_left_frozen(tiny_shards, tmp_path, nothing_frozen):
    train(tiny_shards, tmp_path / "run", max_steps=1)
    assert gc.get_freeze_count() == 0


def test_objects_that_the_program_has_frozen_stay_frozen(tiny_shards, tmp_path, nothing_frozen):
    gc.freeze()
    frozen = gc.get_freeze_count()
    train(tiny_shards, tmp_path / "run", max_steps=1)
    assert gc.get_freeze_count() > frozen / 2  # some were freed in the meantime


# Random numbers and batches


def test_the_seed_of_a_step_is_its_own():
    seeds = {step_seed(seed, step, rank) for seed in range(5) for step in range(200) for rank in range(4)}
    assert len(seeds) == 4000
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_run_depends_on_its_seed_and_on_nothing_else(tiny_shards, tmp_path):
    torch.manual_seed(1)
    train(tiny_shards, tmp_path / "one", max_steps=3, dropout=0.5)
    torch.manual_seed(2)
    train(tiny_shards, tmp_path / "two", max_steps=3, dropout=0.5)
    train(tiny_shards, tmp_path / "three", max_steps=3, dropout=0.5, seed=1)
    one, two, three = (tensors(tmp_path / name, 3)["embedding.weight"] for name in ("one", "two", "three"))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


def test_auto_batch_finds_the_largest_divisor_that_fits_with_few_trials():
    tried = []

    def peak(size):
        tried.append(size)
        return None if size > 20 else 100 + 10 * size

    assert largest_that_fits([1, 2, 4, 8, 16, 32, 64], peak, 10**9) == 16
    assert largest_that_fits([1, 2, 4, 8], peak, 150) == 4
    assert largest_that_fits([1], peak, 150) == 1
    assert len(tried) < 15
    with pytest.raises(TrainingError, match="a single sequence does not fit"):
        largest_that_fits([1, 2], peak, 50)


def test_auto_batch_keeps_the_global_batch(tiny_shards, tmp_path):
    result = train(tiny_shards, tmp_path / "run", batch_size="auto", global_batch_size=24, max_steps=2)
    config = load_config(tmp_path / "run")
    assert (config.batch_size * config.gradient_accumulation_steps, config.global_batch_size) == (24, 24)
    assert result.num_tokens == 2 * 24 * 16
    size = find_batch_size(
        torch.nn.Linear(1, 1), per_device=96, sequence_length=256, device=torch.device("cpu"), autocast=None
    )
    assert size == 32


def test_too_little_text_is_reported_before_a_model_is_built(tiny_shards, tmp_path, monkeypatch):
    def build(_):
        raise AssertionError("a model was built")

    monkeypatch.setattr("gristmill.lm.training.checkpoint.build_model", build)
    with pytest.raises(gm.TrainingError, match="one window of context_length=10,000,000"):
        train(tiny_shards, tmp_path / "run", context_length=10_000_000)
