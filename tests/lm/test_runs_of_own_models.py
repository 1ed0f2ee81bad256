"""Runs that would have been lost: masks among the buffers, statistics that are NaN, signals in the last step."""

import json
import math
import signal
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn

import gristmill as gm
from gristmill import MissingPackageError, NotFiniteError, OptionError
from gristmill.lm.data.token_dataset import TokenDataset
from gristmill.lm.training.checkpoint import read_state, write_checkpoint
from gristmill.lm.training.meters import Meter, first_bad_step
from gristmill.lm.training.run import Run
from gristmill.lm.training.stopping import StopSignals
from gristmill.lm.training.trainer import train_to_the_end
from lm.tiny_runs import TINY, records, train

OWN = {name: value for name, value in TINY.items() if name not in ("num_layers", "num_heads", "d_model")}


@dataclass(frozen=True, kw_only=True)
class MaskedConfig(gm.lm.WindowModelConfig):
    """The options of a table of bigrams with a mask that it saves."""

    STATISTICS: ClassVar = {"oddness": "token"}

    fault: str = ""


@gm.lm.register_model("masked", config=MaskedConfig)
class MaskedModel(gm.lm.Model):
    def __init__(self, config):
        super().__init__(config)
        self.table = nn.Embedding(config.required_vocab_size, config.required_vocab_size)
        length = config.context_length
        self.register_buffer("mask", torch.full((length, length), -math.inf).triu(1))

    def forward(self, tokens_BT):
        length = tokens_BT.shape[1]
        weights_TT = torch.softmax(self.mask[:length, :length], dim=-1)
        return weights_TT @ self.table(tokens_BT)

    def loss(self, batch, schedule):
        loss, stats = super().loss(batch, schedule)
        if self.config.fault == "validation" and not self.training:
            loss = loss * math.nan
            stats = {**stats, "loss": loss.detach()}
        oddness = math.nan if self.config.fault == "statistic" else 1.0
        return loss, {**stats, "oddness": torch.full((), oddness)}


def own(shards, out, fault="", **options):
    torch.set_num_threads(1)
    return gm.lm.train(shards, out=out, progress=None, **{**OWN, "model": MaskedConfig(fault=fault), **options})


def test_a_mask_of_minus_infinity_among_the_buffers_is_saved_and_resumed(tiny_shards, tmp_path):
    own(tiny_shards, tmp_path / "run", max_steps=4, checkpoint_interval=2)
    result = gm.lm.train(tiny_shards, out=tmp_path / "run", resume=True, max_steps=6, progress=None)
    assert result.num_steps == 6
    assert math.isfinite(gm.lm.evaluate(tmp_path / "run", tiny_shards, device="cpu").loss)


@pytest.mark.parametrize("fault", ["statistic", "validation"])
def test_a_run_with_a_nan_that_is_no_training_loss_can_be_resumed(fault, tiny_shards, tmp_path):
    options = {"max_steps": 6, "log_interval": 4, "checkpoint_interval": 2, "keep": 10, "val_check_interval": 2}
    own(tiny_shards, tmp_path / "run", fault, **options)
    folders = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert [read_state(folder)["step"] for folder in folders] == [2, 4, 6]
    result = gm.lm.train(tiny_shards, out=tmp_path / "run", resume=True, max_steps=8, progress=None)
    assert result.num_steps == 8
    assert len(records(tmp_path / "run", "train")) >= 2


def meter():
    return Meter(torch.device("cpu"), capacity=4, flops_per_token=1.0, stats=("odd",))


def test_a_statistic_that_is_nan_survives_json_and_bad_steps_are_still_found():
    one, other = meter(), meter()
    one.add(1, torch.tensor([2.0, math.nan]), torch.tensor(math.inf), 1, 1)  # a norm of inf: the step was skipped
    pending = json.loads(json.dumps(one.pending(), allow_nan=False))
    assert first_bad_step(pending["steps"], pending["losses"], pending["grad_norms"]) == (None, "")
    other.restore(pending)
    found = other.read()
    assert (found.loss, found.grad_norm_max, found.first_bad_step) == (2.0, math.inf, None)
    assert math.isnan(found.stats["odd"])


@pytest.mark.parametrize(
    ("loss", "norm", "what"), [(math.nan, 1.0, "the loss of"), (1.0, math.nan, "the gradient norm of")]
)
def test_a_loss_or_a_norm_that_is_nan_is_still_bad_before_it_is_saved(loss, norm, what):
    one = meter()
    one.add(7, torch.tensor([loss, 0.0]), torch.tensor(norm), 1, 1)
    pending = one.pending()
    assert first_bad_step(pending["steps"], pending["losses"], pending["grad_norms"]) == (7, what)


def test_a_checkpoint_that_could_not_be_read_again_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_checkpoint(tmp_path, {"step": 1, "odd": math.nan}, {})
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_buffers_that_are_nan_are_not_saved(tmp_path):
    with pytest.raises(NotFiniteError, match="'mean' contains NaN"):
        write_checkpoint(tmp_path, {"step": 1}, {"model.safetensors": {"mean": torch.tensor([math.nan])}})


# A signal in the last step


class SignalledElsewhere:
    """Two devices, of which the other one has received SIGTERM."""

    world_size = 2

    def all_reduce(self, number, reduce_op):
        assert reduce_op == "max"
        return torch.maximum(number, torch.tensor(float(signal.SIGTERM)))


def test_devices_agree_on_a_signal_that_only_one_of_them_received():
    run = SimpleNamespace(fabric=SignalledElsewhere(), signals=StopSignals())
    assert Run.agree_to_stop(run)
    assert run.signals.agreed == signal.SIGTERM


def test_a_device_does_not_validate_alone_when_another_was_stopped_in_the_last_step(monkeypatch):
    """It would wait for the other one for good."""
    done = []
    fabric = SignalledElsewhere()
    fabric.barrier = lambda: done.append("barrier")
    run = SimpleNamespace(fabric=fabric, signals=StopSignals(), step=3, notify=lambda message: done.append("notify"))
    run.agree_to_stop = lambda: Run.agree_to_stop(run)
    run.finish, run.save = (lambda: done.append("finish")), (lambda: done.append("save"))
    run.saver = SimpleNamespace(writer=SimpleNamespace(wait=lambda: None))
    run.stopped, run.result = False, lambda: "result"
    run.signals.act = lambda: done.append("act")
    monkeypatch.setattr("gristmill.lm.training.trainer.train_steps", lambda run: None)
    assert train_to_the_end(run) == "result"
    assert done == ["save", "barrier", "notify", "act"]


# What is refused before anything is computed


def test_a_plan_refuses_samples_of_a_model_that_cannot_write(tiny_shards):
    options = {**OWN, "model": SilentConfig(), "sample_interval": 2}
    with pytest.raises(OptionError, match=r"sample_interval=2: model='silent' cannot write text"):
        gm.lm.plan(tiny_shards, **options)


@dataclass(frozen=True, kw_only=True)
class SilentConfig(gm.lm.WindowModelConfig):
    """The options of a model that gives a loss and no logits."""


@gm.lm.register_model("silent", config=SilentConfig)
class SilentModel(gm.lm.Model):
    def __init__(self, config):
        super().__init__(config)
        self.scale = nn.Parameter(torch.ones(()))

    def loss(self, batch, schedule):
        return self.scale**2, {}


@pytest.mark.parametrize(("name", "module"), [("trackio", "trackio"), ("tensorboard", "torch.utils.tensorboard")])
def test_a_logger_that_is_not_installed_is_refused_before_the_folder_is_made(
    name, module, tiny_shards, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError, match=rf"log='{name}' needs {name}, which is not installed"):
        gm.lm.plan(tiny_shards, **TINY, log=name)
    with pytest.raises(MissingPackageError, match=rf"log='{name}' needs {name}, which is not installed"):
        train(tiny_shards, tmp_path / "run", log=name)
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def tiny_run(tiny_shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("review") / "run"
    train(tiny_shards, folder, max_steps=2)
    return folder


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"batch_size": -1}, "batch_size must be >= 1, got -1"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"limit_batches": 2.5}, "limit_batches must be a whole number .* between 0 and 1, got 2.5"),
        ({"limit_batches": -1}, "limit_batches must be a whole number >= 0"),
        ({"limit_batches": math.nan}, "limit_batches must be .* between 0 and 1, got nan"),
    ],
)
def test_evaluate_refuses_numbers_under_the_names_they_were_passed_by(option, message, tiny_run, tiny_shards):
    with pytest.raises(OptionError, match=message):
        gm.lm.evaluate(tiny_run, tiny_shards, device="cpu", **option)


def test_evaluate_closes_the_data_it_has_read(tiny_run, tiny_shards, monkeypatch):
    closed = []
    close = TokenDataset.close
    monkeypatch.setattr(TokenDataset, "close", lambda self: (closed.append(self), close(self)))
    gm.lm.evaluate(tiny_run, tiny_shards, device="cpu", batch_size=2, limit_batches=1)
    assert len(closed) == 1


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_named_with_what_to_pass(device, tiny_run, tiny_shards, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = rf"device='{device}' is not available to torch on this machine. Pass device='cpu'."
    with pytest.raises(OptionError, match=message):
        gm.lm.generate(tiny_run, "the", device=device)
    with pytest.raises(OptionError, match=message):
        gm.lm.evaluate(tiny_run, tiny_shards, device=device)


@pytest.mark.parametrize("device", ["gpu", "cuda:first", "cpu:"])
def test_a_device_of_another_name_is_refused(device, tiny_run):
    with pytest.raises(OptionError, match=rf"device='{device}' is not valid. Pass 'auto', 'cpu', 'cuda' or 'mps'."):
        gm.lm.generate(tiny_run, "the", device=device)
