"""Meters: what a reading says, the table of peaks, and advice."""

import dataclasses
import json
import math

import pytest
import torch

from gristmill.lm.training import meters
from gristmill.lm.training.advice import Situation, advice, is_out_of_memory, out_of_memory
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.meters import Meter, Reading, device_peak, measured_matmul_flops

CPU = torch.device("cpu")


def meter(**options):
    return Meter(CPU, capacity=4, flops_per_token=1e6, **options)


def add(m, step, loss, grad_norm):
    m.add(step, loss[None], grad_norm, 100, 100)


def reading(**changes):
    plain = Reading(
        loss=1.0,
        stats={},
        grad_norm=1.0,
        first_bad_step=None,
        tokens_per_second=1.0,
        padding=0.0,
        mfu=None,
        mfu_matmul=0.5,
        data_wait=0.0,
        seconds=1.0,
    )
    return dataclasses.replace(plain, **changes)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [("NVIDIA H200", 989), ("NVIDIA H100 80GB HBM3", 989), ("NVIDIA A100-SXM4-80GB", 312), ("NVIDIA H100 PCIe", 756)],
)
def test_the_peak_of_a_device_by_its_name(name, tflops):
    assert device_peak(name) == tflops * 1e12


def test_a_cpu_has_no_peak_on_a_data_sheet_but_a_measured_one():
    assert device_peak("AMD EPYC 9654") is None
    assert measured_matmul_flops(CPU, torch.float32, seconds=0.05) > 1e8


def test_a_reading_is_the_mean_of_the_losses_since_the_last(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(meters.time, "perf_counter", lambda: clock[0])
    m = meter(peak=1e9, matmul_flops=2e9)
    for step, loss in ((1, 2.0), (2, 4.0)):
        with m.waiting_for_data():
            clock[0] += 0.1
        clock[0] += 0.9
        add(m, step, torch.tensor(loss), torch.tensor(step / 2))
    found = m.read()
    assert (found.loss, found.grad_norm, found.first_bad_step) == (3.0, 1.0, None)
    assert found.tokens_per_second == pytest.approx(100)
    assert (found.mfu, found.mfu_matmul) == (pytest.approx(0.1), pytest.approx(0.05))
    assert (found.data_wait, found.padding, found.stats) == (pytest.approx(0.1), 0.0, {})
    assert not m.has_pending


def test_time_before_a_restart_does_not_count(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(meters.time, "perf_counter", lambda: clock[0])
    m = meter()
    clock[0] += 50
    m.restart()
    clock[0] += 1
    add(m, 1, torch.tensor(1.0), torch.tensor(1.0))
    assert m.read().tokens_per_second == pytest.approx(100)


def test_what_a_model_tells_besides_its_loss_is_averaged_and_padding_is_not_counted_as_tokens():
    m = meter(stats=("kl",))
    for step, kl in ((1, 2.0), (2, 4.0)):
        m.add(step, torch.tensor([1.0, kl]), torch.tensor(1.0), 60, 100)
    found = m.read()
    assert found.stats == {"kl": 3.0}
    assert found.padding == pytest.approx(0.4)


def test_pending_losses_survive_json_to_the_bit():
    one, other = meter(), meter()
    for step in (1, 2, 3):
        add(one, step, torch.rand(()), torch.rand(()))
    other.restore(json.loads(json.dumps(one.pending())))
    last = torch.rand(())
    for m in (one, other):
        add(m, 4, last, last)
    assert one.read().loss == other.read().loss


def test_the_first_step_without_a_number_is_named():
    m = meter()
    for step, loss in ((5, 1.0), (6, math.nan), (7, math.inf)):
        add(m, step, torch.tensor(loss), torch.tensor(1.0))
    assert m.read().first_bad_step == 6


GPT, VAE = TrainConfig(), TrainConfig(model="vae")
CUDA = torch.device("cuda")


def test_advice_names_the_flag_that_helps():
    assert advice(Situation(reading(data_wait=0.04), CPU, GPT)) == {}
    assert (
        "20% of the time is spent waiting for data" in advice(Situation(reading(data_wait=0.2), CPU, GPT))["slow data"]
    )
    assert "compile_model=True" in advice(Situation(reading(mfu_matmul=0.05), CUDA, GPT))["idle device"]
    assert advice(Situation(reading(mfu_matmul=0.05), CPU, GPT)) == {}


def test_a_device_that_waits_for_data_is_not_called_idle_too():
    assert list(advice(Situation(reading(data_wait=0.5, mfu_matmul=0.01), CUDA, VAE))) == ["slow data"]


def test_advice_leaves_out_what_is_already_done(monkeypatch):
    monkeypatch.setattr("gristmill.lm.training.advice.usable_cores", lambda: 16)
    few = dataclasses.replace(VAE, num_workers=2, pin_memory=False)
    message = advice(Situation(reading(data_wait=0.2), CUDA, few, 2))["slow data"]
    assert message.index("num_workers=16") < message.index("pin_memory=True") < message.index("prefetch_factor=4")
    message = advice(Situation(reading(data_wait=0.2), CUDA, VAE, 16))["slow data"]
    assert "num_workers" not in message
    assert "pin_memory=True" not in message
    compiled = dataclasses.replace(VAE, compile_model=True, precision="bf16-mixed")
    message = advice(Situation(reading(mfu_matmul=0.05), CUDA, compiled))["idle device"]
    assert "batch_size" in message
    assert "compile_model=True" not in message
    assert "precision" not in message


def test_much_padding_is_told_with_the_flag_that_makes_it_less():
    assert "use_dynamic_padding=True" in advice(Situation(reading(padding=0.6), CPU, VAE))["much padding"]
    bucketed = dataclasses.replace(VAE, use_dynamic_padding=True)
    assert "num_buckets=32" in advice(Situation(reading(padding=0.3), CPU, bucketed))["much padding"]
    assert advice(Situation(reading(padding=0.05), CPU, VAE)) == {}


def test_what_helps_against_too_little_memory_depends_on_the_model():
    assert "a shorter context_length" in out_of_memory(GPT)
    assert "vae" not in out_of_memory(GPT)
    message = out_of_memory(dataclasses.replace(VAE, precision="32"))
    order = [
        "batch_size='auto'",
        "gradient_accumulation_steps",
        "precision=",
        "a shorter max_sequence_length",
        "vae-low",
    ]
    assert sorted(order, key=message.index) == order


def test_out_of_memory_is_known_in_all_its_forms():
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
