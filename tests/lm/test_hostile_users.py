"""Mistakes of users: wrong types, wrong models, replacing a run with one that fails."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import gristmill as gm
from gristmill import CheckpointError, NotFiniteError, OptionError
from gristmill.lm.training.run_lock import locked
from lm.tiny_runs import TINY, train

OWN = {name: value for name, value in TINY.items() if name not in ("num_layers", "num_heads", "d_model")}


def test_a_word_that_counts_as_true_does_not_overwrite_a_run(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=2)
    with pytest.raises(OptionError, match=r"overwrite='no' is of type str. Pass True or False"):
        train(tiny_shards, tmp_path / "run", overwrite="no")
    assert (tmp_path / "run" / "checkpoints" / "step-000002").is_dir()


def test_a_run_is_replaced_only_when_the_new_one_has_a_checkpoint(tiny_shards, tmp_path):
    """Otherwise a run that diverges in its second step would leave no checkpoint at all."""
    train(tiny_shards, tmp_path / "run", max_steps=4)
    with pytest.raises(NotFiniteError):
        train(tiny_shards, tmp_path / "run", overwrite=True, learning_rate=1e30, clip_norm=0.0)
    assert (tmp_path / "run" / "checkpoints" / "step-000004").is_dir()
    assert gm.lm.evaluate(tmp_path / "run", tiny_shards, device="cpu").num_tokens > 0


def test_a_folder_in_which_another_process_trains_is_named_as_such(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=2)
    with locked(tmp_path / "run"), pytest.raises(BlockingIOError, match="Another run is using this folder: process"):
        train(tiny_shards, tmp_path / "run")


def test_fewer_steps_are_refused_before_a_warm_up_that_was_not_passed(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=20, warmup_steps=10)
    with pytest.raises(CheckpointError, match=r"max_steps was 20 and is now 5. Pass max_steps >= 20"):
        gm.lm.train(tiny_shards, out=tmp_path / "run", resume=True, max_steps=5, progress=None)


@pytest.mark.parametrize("config", [[], {"max_steps": 3}, 7])
def test_a_config_of_another_type_is_a_type_error(config, tiny_shards, tmp_path):
    with pytest.raises(TypeError, match=r"Pass a gm.lm.TrainConfig or the path of a YAML file"):
        gm.lm.train(tiny_shards, out=tmp_path / "run", config=config)


@dataclass(frozen=True, kw_only=True)
class WrongConfig(gm.lm.WindowModelConfig):
    """Options of a model with one of many faults."""

    fault: str = ""


@gm.lm.register_model("wrong", config=WrongConfig)
class WrongModel(gm.lm.Model):
    def __init__(self, config):
        super().__init__(config)
        self.table = nn.Embedding(config.required_vocab_size, config.required_vocab_size)

    def forward(self, tokens_BT):
        logits_BTV = self.table(tokens_BT)
        faults = {"tuple": (logits_BTV, None), "narrow": logits_BTV[..., :8], "none": None}
        return faults.get(self.config.fault, logits_BTV)

    def loss(self, batch, schedule):
        loss, stats = super().loss(batch, schedule)
        faults = {"bare": loss, "no stats": (loss, None), "many": (loss.expand(3), stats)}
        faults["detached"] = (loss.detach(), stats)
        return faults.get(self.config.fault, (loss, stats))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("tuple", r"WrongModel.forward returned tuple. Return logits of shape \(4, 16, 300\)"),
        ("narrow", r"WrongModel.forward returned \(4, 16, 8\). Return logits"),
        ("none", "WrongModel.forward returned NoneType"),
        ("bare", r"WrongModel.loss returned a Tensor. Return \(loss, stats\)"),
        ("no stats", r"WrongModel.loss returned a tuple. Return \(loss, stats\)"),
        ("many", r"WrongModel.loss returned a loss of \(3,\). Return a tensor with a single number"),
        ("detached", "WrongModel.loss returned a loss without a gradient"),
    ],
)
def test_the_error_for_a_wrong_result_of_a_model_names_what_to_return(fault, message, tiny_shards, tmp_path):
    torch.set_num_threads(1)
    with pytest.raises(OptionError, match=message):
        gm.lm.train(tiny_shards, out=tmp_path / "run", progress=None, **{**OWN, "model": WrongConfig(fault=fault)})


def test_a_schedule_with_an_unknown_required_parameter_is_refused_at_once():
    with pytest.raises(OptionError, match="schedule 'sunk' has a required parameter 'foo', which is not passed"):
        gm.lm.register_schedule("sunk", lambda step, foo: 1.0)
    with pytest.raises(OptionError, match="optimizer 'sunk' has a required parameter 'momentum'"):
        gm.lm.register_optimizer("sunk", lambda model, *, lr, momentum: None)
