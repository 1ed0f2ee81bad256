"""Drivers for the tests of this folder."""

from __future__ import annotations

import functools

import pytest
from emulator import EmulatedDriver, find_compiler

from gristmill.errors import DeviceError
from gristmill.gpu import devices
from gristmill.gpu.cuda import find_driver


@pytest.fixture
def emulated(pytestconfig) -> EmulatedDriver:
    """The emulator. The kernels are compiled for the first test that needs them, and kept for the next sessions."""
    if find_compiler() is None:
        pytest.skip("there is no C++ compiler for the emulator of CUDA")
    return EmulatedDriver(pytestconfig.cache.mkdir("gpu-emulator"))


@pytest.fixture
def install(monkeypatch):
    """A function that makes these drivers the GPUs of this machine, or the message the reason why it has no GPU."""

    def install(*drivers, message=""):
        found = functools.cache(lambda: (drivers, message))
        found()  # as in a process that has used its GPUs before
        monkeypatch.setattr(devices, "_found", found)

    return install


@pytest.fixture(params=["emulator", "cuda"])
def device(request, install) -> str:
    """The name of a device that every public function takes: of the emulator, and of the GPUs of this machine."""
    if request.param == "emulator":
        install(request.getfixturevalue("emulated"))
    else:
        try:
            find_driver()
        except DeviceError as error:
            pytest.skip(str(error))
    return "cuda"


@pytest.fixture(params=["emulator", "cuda"])
def driver(request):
    """The emulator, and the GPU of this machine if it has one."""
    if request.param == "emulator":
        return request.getfixturevalue("emulated")
    try:
        return find_driver()
    except DeviceError as error:
        pytest.skip(str(error))
