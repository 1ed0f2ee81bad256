"""Precision: inputs of a model are not rounded, and float16 with a loss scale trains and resumes bit-exactly.

Users cannot train in 16-mixed on a CPU. `half_precision` enables it here, so that the CPU stands in for a GPU.
"""

import json
import math

import pytest
import torch
from torch import nn

import gristmill.lm.training.devices as devices
from gristmill import OptionError
from gristmill.lm.models.gpt.network import GPT
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.precision import find_precision
from lm.tiny_runs import Crash, assert_same_run, crash_at, records, train

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def half_precision(request, monkeypatch):
    """Options of a run in 16-mixed on a device."""
    monkeypatch.setattr(devices, "find_precision", lambda precision, **_: precision)
    return {"precision": "16-mixed", "device": request.param, "deterministic": request.param == "cuda"}


# Inputs


class Recording(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, fields, schedule):
        self.seen = fields["vectors_BTE"], schedule["kl_weight"]
        self.product = self.layer(fields["vectors_BTE"])
        return self.product.sum()


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "32"])
def test_a_model_gets_vectors_and_schedule_as_they_are(monkeypatch, precision):
    monkeypatch.setattr(devices, "find_precision", lambda precision, **_: precision)
    fabric, _ = devices.launch(TrainConfig.from_options({"device": "cpu", "precision": precision}))
    module = Recording()
    vectors_BTE, kl_weight = torch.rand(2, 3, 4), torch.tensor(0.123456789)
    loss = fabric.setup_module(module)({"vectors_BTE": vectors_BTE}, {"kl_weight": kl_weight})
    for seen, given in zip(module.seen, (vectors_BTE, kl_weight), strict=True):
        assert seen.dtype == torch.float32
        assert torch.equal(seen, given)
    kinds = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "32": torch.float32}
    assert module.product.dtype == kinds[precision]
    assert loss.dtype == torch.float32


# The loss scale


def overflow(monkeypatch, *steps, first=1):
    """Make the gradients of some steps infinite, as if the loss scale were too large."""
    real, calls = GPT.loss, []

    def loss(self, batch, schedule):
        found, stats = real(self, batch, schedule)
        if self.training:
            calls.append(1)
            if len(calls) + first - 1 in steps:
                found.register_hook(lambda gradient: gradient * math.inf)
        return found, stats

    monkeypatch.setattr(GPT, "loss", loss)


def scaler_of(run, step):
    return json.loads((run / f"checkpoints/step-{step:06d}/state.json").read_text())["scaler"]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_in_float16_skips_overflows_and_resumes_to_the_bit(
    tiny_shards, tmp_path, monkeypatch, half_precision, optimizer
):
    options = {**half_precision, "optimizer": optimizer, "dropout": 0.1}
    # Step 10 is between a record and its checkpoint, which must store a norm of inf.
    with monkeypatch.context() as patched:
        overflow(patched, 3, 10, 15)
        train(tiny_shards, tmp_path / "whole", **options)
    with monkeypatch.context() as patched:
        overflow(patched, 3, 10, 15)
        with pytest.raises(Crash):
            train(tiny_shards, tmp_path / "broken", progress=crash_at(12), **options)
    with monkeypatch.context() as patched:
        overflow(patched, 15, first=11)
        train(tiny_shards, tmp_path / "broken", resume="auto", **options)
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 20)
    assert scaler_of(tmp_path / "whole", 20) == scaler_of(tmp_path / "broken", 20)
    assert scaler_of(tmp_path / "whole", 20)["scale"] == 2.0**16 / 2**3
    assert scaler_of(tmp_path / "whole", 20)["_growth_tracker"] == 5
    losses = [record["loss"] for record in records(tmp_path / "whole", "train")]
    assert losses[-1] < losses[0] - 0.5


def test_float16_learns_what_float32_learns(tiny_shards, tmp_path, half_precision):
    losses = [
        train(tiny_shards, tmp_path / precision, **{**half_precision, "precision": precision}).val_loss
        for precision in ("32", "16-mixed")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


@pytest.mark.parametrize(
    ("before", "after"),
    [("32", "16-mixed"), ("bf16-mixed", "16-mixed"), ("16-mixed", "32"), ("16-mixed", "bf16-mixed")],
)
def test_a_run_resumes_in_another_precision(tiny_shards, tmp_path, half_precision, before, after):
    with pytest.raises(Crash):
        train(tiny_shards, tmp_path / "run", progress=crash_at(12), **{**half_precision, "precision": before})
    result = train(tiny_shards, tmp_path / "run", resume="auto", **{**half_precision, "precision": after})
    assert result.num_steps == 20
    assert bool(scaler_of(tmp_path / "run", 10)) == (before == "16-mixed")
    assert bool(scaler_of(tmp_path / "run", 20)) == (after == "16-mixed")


# 16-mixed on a CPU


@pytest.mark.parametrize(
    ("capabilities", "instead"),
    [
        ({"avx512_bf16": True}, "bf16-mixed"),
        ({"amx_bf16": True}, "bf16-mixed"),
        ({"architecture": "aarch64", "bf16": True}, "bf16-mixed"),
        ({"avx2": True, "avx512_bf16": False}, "32"),
        ({}, "32"),
    ],
)
def test_on_a_cpu_16_mixed_becomes_what_the_cpu_is_good_at(monkeypatch, capabilities, instead):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    with pytest.warns(UserWarning, match=f"'16-mixed' needs a GPU.*uses precision='{instead}' instead") as caught:
        assert find_precision("16-mixed", device="cpu", strategy="auto") == instead
    assert caught[0].filename == __file__


@pytest.mark.parametrize("precision", ["bf16-mixed", "32"])
def test_what_a_cpu_can_do_is_done_without_a_warning(recwarn, precision):
    assert find_precision(precision, device="cpu", strategy="auto") == precision
    assert find_precision("auto", device="cpu", strategy="auto") == "32"
    assert find_precision("16-mixed", device="cuda", strategy="auto") == "16-mixed"
    assert not recwarn.list


def test_16_mixed_with_fsdp_is_refused():
    with pytest.raises(OptionError, match=r"does not work with strategy='fsdp'.*Pass precision='bf16-mixed'"):
        find_precision("16-mixed", device="cuda", strategy="fsdp")


def test_a_run_in_16_mixed_on_a_cpu_warns_once_trains_and_resumes(tiny_shards, tmp_path):
    with pytest.warns(UserWarning, match="16-mixed") as caught:
        train(tiny_shards, tmp_path / "run", precision="16-mixed", max_steps=4)
    assert len([each for each in caught if "16-mixed" in str(each.message)]) == 1
    assert json.loads((tmp_path / "run/config.json").read_text())["precision"] in ("bf16-mixed", "32")
    with pytest.warns(UserWarning, match="16-mixed"):
        assert train(tiny_shards, tmp_path / "run", precision="16-mixed", max_steps=4, resume="auto").num_steps == 4
