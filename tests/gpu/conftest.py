"""Drivers for the tests of this folder."""

from __future__ import annotations

import pytest
from emulator import EmulatedDriver, find_compiler

from gristmill.errors import DeviceError
from gristmill.gpu.cuda import find_driver


@pytest.fixture
def emulated(pytestconfig) -> EmulatedDriver:
    """The emulator. The kernels are compiled for the first test that needs them, and kept for the next sessions."""
    if find_compiler() is None:
        pytest.skip("there is no C++ compiler for the emulator of CUDA")
    return EmulatedDriver(pytestconfig.cache.mkdir("gpu-emulator"))


@pytest.fixture(params=["emulator", "cuda"])
def driver(request):
    """The emulator, and the GPU of this machine if it has one."""
    if request.param == "emulator":
        return request.getfixturevalue("emulated")
    try:
        return find_driver()
    except DeviceError as error:
        pytest.skip(str(error))
