"""Meters: readings, the table of peaks, and advice."""

import dataclasses
import json
import math
import time
from types import SimpleNamespace

import pytest
import torch

from gristmill.lm.data.sequences.loader import WorkerLoader
from gristmill.lm.training import meters
from gristmill.lm.training.advice import Situation, advice, is_out_of_memory, out_of_memory
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.data_wait import DeviceWait
from gristmill.lm.training.meters import Meter, Reading, device_peak, measured_matmul_flops
from gristmill.lm.training.set_up import DTYPES_OF_PRODUCTS, precision_of_products

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
        grad_norm_max=1.0,
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
    [
        ("NVIDIA H200", 989),
        ("NVIDIA GH200 480GB", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A10G", 70),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
        ("NVIDIA GB200", 2500),
        ("NVIDIA RTX A6000", 155),
        ("NVIDIA RTX 6000 Ada Generation", 364),
        ("NVIDIA GeForce RTX 4090", 165),
        ("Tesla V100-SXM2-16GB", 125),
        ("Tesla V100S-PCIE-32GB", 130),
        ("Tesla T4", 65),
        ("AMD Instinct MI300X", 1307),
    ],
)
def test_the_peak_of_a_device_by_its_name(name, tflops):
    assert device_peak(name) == tflops * 1e12


@pytest.mark.parametrize("name", ["NVIDIA RTX A1000", "NVIDIA RTX A4000", "NVIDIA RTX A3000 Laptop GPU", "NVIDIA T400"])
def test_a_name_that_begins_like_that_of_a_faster_device_has_no_peak(name):
    assert device_peak(name) is None


@pytest.mark.parametrize(
    ("precision", "tflops"), [("bf16-mixed", 989), ("16-mixed", 989), ("32", 494.5), ("float8", 1978)]
)
def test_the_peak_depends_on_the_precision_of_products(precision, tflops):
    assert device_peak("NVIDIA H200", precision) == tflops * 1e12
    assert device_peak("AMD EPYC 9654", precision) is None


def test_a_run_with_any_products_in_8_bit_floats_is_measured_against_their_peak():
    found = {
        float8: precision_of_products(TrainConfig(precision="32", float8=float8)) for float8 in ("off", "head", "all")
    }
    assert found == {"off": "32", "head": "float8", "all": "float8"}
    assert set(found.values()) <= DTYPES_OF_PRODUCTS.keys()


def test_a_cpu_has_no_peak_its_cores_are_shared():
    assert device_peak("AMD EPYC 9654") is None
    assert measured_matmul_flops(CPU, torch.float32) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_the_measured_product_is_no_part_of_the_memory_of_the_run(dtype):
    device = torch.device("cuda", 0)
    if dtype == torch.float8_e4m3fn and torch.cuda.get_device_capability(device) < (8, 9):
        pytest.skip("needs products of 8-bit floats")
    assert measured_matmul_flops(device, dtype) > 1e11
    assert torch.cuda.max_memory_allocated(device) < 8192**2


def test_a_share_of_the_peak_that_cannot_be_right_is_left_out(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(meters.time, "perf_counter", lambda: clock[0])
    m = meter(peak=1e7, matmul_flops=1e8)
    for seconds, shares in ((1.0, (None, 1.0)), (0.1, (None, None)), (10.0, (1.0, 0.1))):
        clock[0] += seconds
        add(m, 1, torch.tensor(1.0), torch.tensor(1.0))
        found = m.read()
        assert (found.mfu, found.mfu_matmul) == tuple(share and pytest.approx(share) for share in shares)


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
    assert (found.loss, found.grad_norm, found.grad_norm_max, found.first_bad_step) == (3.0, 0.75, 1.0, None)
    assert found.tokens_per_second == pytest.approx(100)
    assert (found.mfu, found.mfu_matmul) == (pytest.approx(0.1), pytest.approx(0.05))
    assert (found.data_wait, found.padding, found.stats) == (pytest.approx(0.1), 0.0, {})
    assert not m.has_pending


def test_a_gradient_norm_that_overflows_is_the_greatest_and_no_part_of_the_mean():
    m = meter()
    for step, norm in ((1, 2.0), (2, math.inf), (3, 4.0)):
        add(m, step, torch.tensor(1.0), torch.tensor(norm))
    found = m.read()
    assert (found.grad_norm, found.grad_norm_max) == (3.0, math.inf)
    add(m, 4, torch.tensor(1.0), torch.tensor(math.nan))
    found = m.read()
    assert math.isnan(found.grad_norm)
    assert math.isnan(found.grad_norm_max)


class Queue:
    """A device as the host sees it: it runs queued work in order, and passes marks in between."""

    def __init__(self):
        self.now = self.free_from = 0.0  # in seconds, of the host and of the device

    def work(self, seconds):
        self.free_from = max(self.free_from, self.now) + seconds

    def mark(self):
        queue, passed = self, max(self.free_from, self.now)

        class Mark:
            time = passed

            def query(self):
                return queue.now >= passed

            def elapsed_time(self, end):
                assert self.query() and end.query()  # CUDA raises for marks that were not passed
                return 1e3 * (end.time - passed)

        return Mark()


@pytest.mark.parametrize(
    ("work", "host_wait", "idle"),
    [(1.0, 0.2, 0.0), (0.1, 0.4, 0.3), (0.0, 0.4, 0.4)],
    ids=["the device is busy for longer", "it runs dry", "it has nothing to do"],
)
def test_only_the_time_after_the_device_ran_dry_is_waiting_for_data(work, host_wait, idle):
    queue = Queue()
    wait = DeviceWait(queue.mark)
    for _ in range(10):
        queue.now = max(queue.now, queue.free_from)
        queue.work(work)
        with wait.waiting():
            queue.now += host_wait
    queue.now += 10 * work  # all work is done
    assert wait.seconds() == pytest.approx(10 * idle)
    wait.restart()
    assert wait.seconds() == 0


def test_marks_of_steps_before_a_restart_do_not_count_after_it():
    queue = Queue()
    wait = DeviceWait(queue.mark)
    queue.work(0.5)
    with wait.waiting():
        queue.now += 0.1
    with wait.waiting():
        queue.now += 3.0
    wait.restart()
    with wait.waiting():
        queue.now += 0.25
    assert wait.seconds() == pytest.approx(0.25)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_that_is_busy_while_the_host_waits_does_not_wait_for_data():
    m = Meter(torch.device("cuda", 0), capacity=4, flops_per_token=1e6)
    for step in range(1, 4):
        torch.cuda._sleep(1_000_000_000)  # about half a second on the device
        with m.waiting_for_data():
            time.sleep(0.05)
        add(m, step, torch.ones((), device="cuda"), torch.ones((), device="cuda"))
    assert m.read().data_wait < 0.02
    with m.waiting_for_data():
        time.sleep(0.2)
    add(m, 4, torch.ones((), device="cuda"), torch.ones((), device="cuda"))
    assert m.read().data_wait > 0.5


def test_time_before_a_restart_does_not_count(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(meters.time, "perf_counter", lambda: clock[0])
    m = meter()
    clock[0] += 50
    m.restart()
    clock[0] += 1
    add(m, 1, torch.tensor(1.0), torch.tensor(1.0))
    assert m.read().tokens_per_second == pytest.approx(100)


def test_other_statistics_are_averaged_and_padding_is_not_counted_as_tokens():
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


GPT, VAE = TrainConfig(), TrainConfig.from_options({"model": "vae"})
CUDA = torch.device("cuda")


def test_advice_names_the_flag_that_helps():
    assert advice(Situation(reading(data_wait=0.04), CPU, GPT)) == {}
    assert (
        "20% of the time is spent waiting for data" in advice(Situation(reading(data_wait=0.2), CPU, GPT))["slow data"]
    )
    assert "compile_model=True" in advice(Situation(reading(mfu_matmul=0.05), CUDA, GPT))["idle device"]
    assert (
        "compile_model" not in advice(Situation(reading(mfu_matmul=0.05), CUDA, GPT, uses_kernels=True))["idle device"]
    )
    assert advice(Situation(reading(mfu_matmul=0.05), CPU, GPT)) == {}


def test_a_device_that_waits_for_data_is_not_called_idle_too():
    assert list(advice(Situation(reading(data_wait=0.5, mfu_matmul=0.01), CUDA, VAE))) == ["slow data"]


def test_advice_leaves_out_what_is_already_done(monkeypatch):
    monkeypatch.setattr("gristmill.lm.training.advice.usable_cores", lambda: 16)
    few = TrainConfig.from_options({"model": "vae", "num_workers": 2, "pin_memory": False})
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


def test_much_padding_is_reported_with_the_option_that_reduces_it():
    assert "use_dynamic_padding=True" in advice(Situation(reading(padding=0.6), CPU, VAE))["much padding"]
    bucketed = TrainConfig.from_options({"model": "vae", "use_dynamic_padding": True})
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
    died = WorkerLoader._failed(SimpleNamespace(_num_workers=2), "worker 0 died")
    assert "num_workers=1" in str(died) and not is_out_of_memory(died)
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
