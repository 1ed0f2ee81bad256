"""Runs of the trainer whose step is computed with kernels."""

import pytest
import torch

from lm.tiny_runs import assert_same_run, records, tensors, train


@pytest.fixture(autouse=True)
def kernels_on_every_device(monkeypatch):
    """Let runs use kernels on a CPU too, by the interpreter."""
    from gristmill.lm.training import kernels

    if torch.cuda.is_available():
        return
    monkeypatch.setattr(kernels, "_why_not", lambda config, model, device: model.why_no_kernels())
    monkeypatch.setattr(kernels, "_check_float8", lambda config, device: None)


SHORT = {
    "max_steps": 6,
    "checkpoint_interval": 3,
    "val_check_interval": 3,
    "log_interval": 1,
    "precision": "bf16-mixed",
}


@pytest.mark.parametrize("float8", ["off", "all"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_with_kernels_learns_what_a_plain_one_learns(tiny_shards, tmp_path, float8, optimizer):
    options = {**SHORT, "optimizer": optimizer, "device": "auto"}
    train(tiny_shards, tmp_path / "plain", **options, kernels="plain") if False else None
    result = train(tiny_shards, tmp_path / "kernels", **options, float8=float8)
    from gristmill.lm.training import kernels

    print(records(tmp_path / "kernels", "train"))
    print([r for r in records(tmp_path / "kernels", "event")][:3])
