"""Registered optimizers and schedules in whole runs: they train, resume bit-exactly, and load from a plugin."""

import sys
import textwrap

import pytest
import torch

import gristmill as gm
from gristmill.cli import main
from gristmill.lm.training.config import load_config
from gristmill.lm.training.registries import OPTIMIZERS, SCHEDULES
from lm.tiny_runs import TINY, Crash, assert_same_run, crash_at, records, tensors, train

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    """Restore the registries after each test."""
    for registry in (OPTIMIZERS, SCHEDULES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.delitem(sys.modules, "gristmill_plugin_mine", raising=False)


def momentum(model, *, lr, weight_decay):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=weight_decay)


def adagrad(model, *, lr):
    return torch.optim.Adagrad(model.parameters(), lr=lr)


def halves(model, *, lr):
    """Two optimizers, each for a part of the weights."""
    weights = list(model.parameters())
    return [torch.optim.SGD(weights[::2], lr=lr, momentum=0.5), torch.optim.RMSprop(weights[1::2], lr=0.1 * lr)]


def inverse_sqrt(step, *, warmup_steps):
    return min((step + 1) / max(warmup_steps, 1), (max(warmup_steps, 1) / (step + 1)) ** 0.5)


@pytest.mark.parametrize("build", [momentum, adagrad, halves])
def test_a_run_with_an_own_optimizer_and_schedule_resumes_bit_exactly(tiny_shards, tmp_path, build):
    gm.lm.register_optimizer("mine", build)
    gm.lm.register_schedule("inverse-sqrt", inverse_sqrt)
    own = {"optimizer": "mine", "schedule": "inverse-sqrt", "warmup_steps": 4, "learning_rate": 0.05}
    train(tiny_shards, tmp_path / "whole", **own)
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "broken", progress=crash_at(12), **own)
    gm.lm.train(tiny_shards, out=tmp_path / "broken", resume=True, progress=None)
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 20)
    losses = [record["loss"] for record in records(tmp_path / "whole", "train")]
    assert losses[-1] < losses[0]


def test_the_learning_rate_of_a_run_is_that_of_the_own_schedule(tiny_shards, tmp_path):
    gm.lm.register_schedule("inverse-sqrt", inverse_sqrt)
    own = {"schedule": "inverse-sqrt", "warmup_steps": 3, "learning_rate": 0.01}
    train(tiny_shards, tmp_path / "run", max_steps=6, log_interval=1, **own)
    found = [record["lr"] for record in records(tmp_path / "run", "train")]
    assert found == pytest.approx([0.01 * inverse_sqrt(step, warmup_steps=3) for step in range(6)])


def test_an_own_optimizer_that_is_adamw_takes_the_same_steps(tiny_shards, tmp_path):
    def plain_adamw(model, *, lr, betas, eps):
        return torch.optim.AdamW(model.parameters(), lr=lr, betas=betas, eps=eps, weight_decay=0.0)

    gm.lm.register_optimizer("plain-adamw", plain_adamw)
    for name in ("adamw", "plain-adamw"):
        train(tiny_shards, tmp_path / name, max_steps=4, optimizer=name, weight_decay=0.0)
    one, other = tensors(tmp_path / "adamw", 4), tensors(tmp_path / "plain-adamw", 4)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "lion"}, r"optimizer='lion' is not valid. Pass one of 'adamw', 'muon', 'mine'"),
        ({"schedule": "sqrt"}, r"schedule='sqrt' is not valid. Pass one of 'cosine', 'wsd', 'constant', 'flat'"),
    ],
)
def test_an_unknown_name_is_refused_with_those_there_are(tiny_shards, tmp_path, options, message):
    gm.lm.register_optimizer("mine", momentum)
    gm.lm.register_schedule("flat", lambda step: 1.0)
    with pytest.raises(gm.OptionError, match=message):
        train(tiny_shards, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_run_whose_optimizer_is_not_registered_is_not_called_damaged(tiny_shards, tmp_path):
    gm.lm.register_optimizer("mine", momentum)
    train(tiny_shards, tmp_path / "run", max_steps=2, optimizer="mine")
    del OPTIMIZERS._entries["mine"]
    with pytest.raises(gm.CheckpointError, match=r"optimizer='mine' is not registered.*registers it first") as caught:
        gm.lm.generate(tmp_path / "run", "the cat")
    assert "damaged" not in str(caught.value)
    with pytest.raises(gm.GristmillError, match="optimizer='mine' is not valid"):
        gm.lm.train(tiny_shards, out=tmp_path / "run", resume=True, progress=None)


PLUGIN = textwrap.dedent("""
    import torch
    import gristmill as gm

    def momentum(model, *, lr):
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    gm.lm.register_optimizer("momentum", momentum)
    gm.lm.register_schedule("flat", lambda step: 1.0)
""")


def test_the_command_line_trains_and_resumes_with_what_a_plugin_registers(tiny_shards, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(PLUGIN)
    plugin = ["--plugin", str(tmp_path / "mine.py")]
    flags = [f"--{name}={value}" for name, value in TINY.items()]
    command = ["train-model", str(tiny_shards), "-o", str(tmp_path / "run"), "--progress", "none"]
    assert main([*command, *plugin, *flags, "--optimizer", "momentum", "--schedule", "flat", "--max-steps", "8"]) == 0
    assert main([*command, *plugin, "--resume", "--max-steps", "12"]) == 0
    config = load_config(tmp_path / "run")
    assert (config.optimizer, config.schedule, config.max_steps) == ("momentum", "flat", 12)
    assert {record["lr"] for record in records(tmp_path / "run", "train")} == {TINY["learning_rate"]}
    train(tiny_shards, tmp_path / "whole", optimizer="momentum", schedule="flat", max_steps=12)
    one, other = tensors(tmp_path / "run", 12), tensors(tmp_path / "whole", 12)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_command_line_names_what_is_there_without_the_plugin(tiny_shards, tmp_path, capsys):
    command = ["train-model", str(tiny_shards), "-o", str(tmp_path / "run"), "--optimizer", "momentum"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "momentum" in said and "adamw" in said and "muon" in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import gristmill as gm\ngm.lm.register_optimizer('Ada Grad', print)\n", "line 2"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("def broken(:\n", "SyntaxError"),
    ],
)
def test_a_plugin_that_fails_is_one_line_with_its_place(tiny_shards, tmp_path, capsys, text, message):
    (tmp_path / "mine.py").write_text(text)
    command = ["train-model", str(tiny_shards), "-o", str(tmp_path / "run"), "--plugin", str(tmp_path / "mine.py")]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert message in said and "mine.py" in said
    assert len(said.strip().splitlines()) == 1
