"""Runs that would have been lost: masks among the buffers, statistics that are NaN, signals in the last step."""

import json
import math
import signal
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn

import gristmill as gm
from gristmill import NotFiniteError
from gristmill.lm.training.checkpoint import read_state, write_checkpoint
from gristmill.lm.training.meters import Meter, first_bad_step
from gristmill.lm.training.run import Run
from gristmill.lm.training.stopping import StopSignals
from gristmill.lm.training.trainer import train_to_the_end
from lm.tiny_runs import TINY, records

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
    with pytest.raises(NotFiniteError, match="'mean' holds NaN"):
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
    assert run.signals.received == signal.SIGTERM


def test_a_device_does_not_validate_alone_when_another_was_stopped_in_the_last_step(monkeypatch):
    """It would wait for the other one for good."""
    done = []
    fabric = SignalledElsewhere()
    fabric.barrier = lambda: done.append("barrier")
    run = SimpleNamespace(fabric=fabric, signals=StopSignals(), step=3, tell=lambda message: done.append("tell"))
    run.agree_to_stop = lambda: Run.agree_to_stop(run)
    run.finish, run.save = (lambda: done.append("finish")), (lambda: done.append("save"))
    run.saver = SimpleNamespace(writer=SimpleNamespace(wait=lambda: None))
    run.stopped, run.result = False, lambda: "result"
    run.signals.act = lambda: done.append("act")
    monkeypatch.setattr("gristmill.lm.training.trainer.train_steps", lambda run: None)
    assert train_to_the_end(run) == "result"
    assert done == ["save", "barrier", "tell", "act"]
