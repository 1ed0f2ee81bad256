"""The choice of a device: by size, by what a GPU cannot do, and after a failure."""

from __future__ import annotations

import warnings

import pytest

import gristmill as gm
from gristmill.errors import DeviceError, DeviceMemoryError, DeviceWarning, OptionError
from gristmill.gpu import cuda, devices
from gristmill.gpu.cuda import CudaGpus
from gristmill.gpu.devices import TEXT, WORDS, Choice, Device

NO_GPU = "CUDA finds no GPU."


class NamedDriver:
    """A driver that nothing runs on."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.num_uses = 0

    def release(self):
        self.num_uses += 1


@pytest.fixture
def two_gpus(install):
    drivers = NamedDriver("GPU 0"), NamedDriver("GPU 1")
    install(*drivers)
    return drivers


@pytest.mark.parametrize(
    "device", ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:1 ", "cuda:00", "cuda:٣", "", None, 0, 1.5, b"cuda"]
)
def test_a_device_that_does_not_exist_is_an_option_error(two_gpus, device):
    with pytest.raises(OptionError, match=r"device=.* is not valid\. Pass 'auto', 'cpu', 'cuda', or .* 'cuda:0'\."):
        Device.checked(device)


def test_the_number_of_a_gpu_that_is_not_there_is_an_error_that_names_the_others(two_gpus):
    with pytest.raises(
        OptionError, match=r"'cuda:2' is not a GPU of this machine\. Pass 'cuda:0', 'cuda:1', or 'cuda' for all"
    ):
        Device.checked("cuda:2")


def test_cuda_is_all_gpus_and_a_number_is_one(two_gpus):
    assert Device.checked("cuda").for_text(5, num_threads=2).drivers == two_gpus
    assert Device.checked("cuda:1").for_text(5, num_threads=2).drivers == two_gpus[1:]


def test_cuda_without_a_gpu_is_an_error_with_the_reason(install):
    install(message=NO_GPU)
    with pytest.raises(DeviceError, match=r"device='cuda' cannot be used: CUDA finds no GPU\. .* device='cpu'\."):
        gm.train_tokenizer(["low"], vocab_size=258, device="cuda", progress=None)


def test_auto_without_a_gpu_is_the_cpu_without_a_word(install):
    install(message=NO_GPU)
    device = Device.checked("auto")
    assert device.for_text(10**12, num_threads=2) == device.for_words(10**12, num_threads=2) == Choice((), "")


def test_cpu_never_asks_for_a_gpu(monkeypatch):
    monkeypatch.setattr(devices, "gpus", None)
    device = Device.checked("cpu")
    with device.released():
        assert device.for_text(10**12, num_threads=2) == Choice((), "")


def test_a_small_corpus_does_not_import_cupy(monkeypatch):
    monkeypatch.setattr(devices, "gpus", CudaGpus())
    monkeypatch.setattr(cuda, "_import_cupy", lambda: pytest.fail("CuPy was imported"))
    monkeypatch.setattr(devices, "_may_have_gpu", lambda: True)
    device = Device.checked("auto")
    assert device.for_text(TEXT.cold - 1, num_threads=2).drivers == ()
    choice = device.for_words(WORDS.cold - 1, num_threads=2)
    assert choice == Choice((), "34,999,999 bytes of distinct words; a GPU is used from 35,000,000")


@pytest.mark.parametrize("crossover", [TEXT, WORDS])
def test_a_gpu_pays_earlier_in_a_process_that_uses_it_and_later_beside_many_cores(crossover):
    least = [crossover.least(num_threads=threads, is_warm=False) for threads in (1, 2, 8, 16)]
    assert least == sorted(least) and least[0] == least[1] == crossover.cold < least[2]
    assert crossover.least(num_threads=16, is_warm=True) == crossover.warm < crossover.cold


def test_auto_says_which_device_and_why(two_gpus):
    device = Device.checked("auto")
    choice = device.for_text(TEXT.warm, num_threads=2)
    assert choice == Choice(two_gpus[:1], "32,000,000 bytes of text; a GPU is used from 32,000,000")
    choice = device.for_text(TEXT.warm - 1, num_threads=2)
    assert choice == Choice((), "31,999,999 bytes of text; a GPU is used from 32,000,000")


def test_text_of_unknown_size_is_counted_on_the_cpu_unless_the_caller_asks(two_gpus):
    choice = Device.checked("auto").for_text(None, num_threads=2, unknown="not known")
    assert choice == Choice((), "not known")
    assert Device.checked("cuda").for_text(None, num_threads=2).drivers == two_gpus


def test_an_obstacle_is_one_for_every_device_and_is_said_only_beside_a_gpu(two_gpus, install):
    choice = Device.checked("cuda").for_text(10**12, num_threads=2, obstacle="only the CPU can")
    assert choice == Choice((), "only the CPU can")
    install(message=NO_GPU)
    alone = Device.checked("auto").for_text(10**12, num_threads=2, obstacle="only the CPU can")
    assert alone == Choice((), "")


def test_after_a_failure_auto_stays_on_the_cpu_and_warns_once(two_gpus):
    device = Device.checked("auto")
    assert device.for_text(10**12, num_threads=2).drivers == two_gpus[:1]
    with pytest.warns(DeviceWarning, match="the CPU does the work of a GPU that failed: it fell off the bus") as caught:
        assert device.can_do_without(DeviceError("it fell off the bus"))
        assert device.can_do_without(DeviceError("it fell off the bus"))
    assert len(caught) == 1
    failed = Choice((), "it fell off the bus")
    assert device.for_text(10**12, num_threads=2) == device.for_words(10**12, num_threads=2) == failed


def test_after_a_failure_later_runs_of_the_process_stay_on_the_cpu_too(two_gpus):
    assert not Device.checked("cuda").can_do_without(DeviceError("it fell off the bus"))
    choice = Device.checked("auto").for_text(10**12, num_threads=2)
    assert choice == Choice((), "a GPU has failed in this process: it fell off the bus")
    assert Device.checked("cuda").for_text(5, num_threads=2).drivers == two_gpus


def test_too_little_memory_is_no_warning_with_auto_and_an_error_with_cuda(two_gpus):
    error = DeviceMemoryError("the memory of the GPU is full")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Device.checked("auto").can_do_without(error)
    assert Device.checked("auto").for_text(10**12, num_threads=2).drivers == two_gpus[:1]
    assert not Device.checked("cuda").can_do_without(error)


def test_the_memory_of_every_gpu_is_released_at_the_end(two_gpus):
    device = Device.checked("cuda")
    with device.released():
        device.for_text(10**12, num_threads=2)
        assert [driver.num_uses for driver in two_gpus] == [0, 0]
    assert [driver.num_uses for driver in two_gpus] == [1, 1]


def test_a_run_on_the_cpu_does_not_wait_for_a_gpu_that_another_thread_uses(two_gpus):
    device = Device.checked("auto")
    with device.released():
        device.for_text(5, num_threads=2)
    assert [driver.num_uses for driver in two_gpus] == [0, 0]
