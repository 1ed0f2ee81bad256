"""Drivers for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulator import EmulatedDriver, InstalledGpus, LateDriver, find_compiler

from gristmill.gpu import devices


@pytest.fixture
def kernel_folder(pytestconfig) -> Path:
    """Where the kernels of the emulator are. They are compiled for the first test, and kept for the next sessions."""
    if find_compiler() is None:
        pytest.skip("there is no C++ compiler for the emulator of CUDA")
    return pytestconfig.cache.mkdir("gpu-emulator")


@pytest.fixture
def emulated(kernel_folder) -> EmulatedDriver:
    return EmulatedDriver(kernel_folder)


@pytest.fixture
def late_pair(kernel_folder) -> list[LateDriver]:
    """Two GPUs that do their work as late as they may."""
    return [LateDriver(kernel_folder), LateDriver(kernel_folder)]


@pytest.fixture
def install(monkeypatch):
    """A function that makes these drivers the GPUs of this machine, or the message the reason why it has no GPU."""

    def install(*drivers, message=""):
        monkeypatch.setattr(devices, "gpus", InstalledGpus(drivers, message))

    return install


@pytest.fixture(params=["emulator", "cuda"])
def device(request, install, monkeypatch) -> str:
    """The name of a device that every public function takes: of the emulator, and of the GPUs of this machine."""
    if request.param == "emulator":
        install(request.getfixturevalue("emulated"))
    else:
        if (reason := devices.missing_gpu()) is not None:
            pytest.skip(reason)
        monkeypatch.setattr(devices.gpus, "failure", "")  # tests let GPUs fail
    return "cuda"


@pytest.fixture(params=["emulator", "cuda"])
def driver(request):
    """The emulator, and the GPU of this machine if it has one."""
    if request.param == "emulator":
        return request.getfixturevalue("emulated")
    if (reason := devices.missing_gpu()) is not None:
        pytest.skip(reason)
    return devices.open_gpus(most=1)[0]


@pytest.fixture(params=[1, 2, 3])
def drivers(request, driver):
    """One GPU, and several of them. A machine with one GPU has it several times."""
    if isinstance(driver, EmulatedDriver):
        folder = request.getfixturevalue("kernel_folder")
        return [driver, *(EmulatedDriver(folder) for _ in range(request.param - 1))]
    return [driver] * request.param
