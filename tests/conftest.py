"""Settings of the whole suite. Texts that the tests share are in texts.py, beside this file."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run; HYPOTHESIS_PROFILE=explore looks for new ones, and `few` is for sanitizers.
settings.register_profile("gristmill", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("few", deadline=None, derandomize=True, max_examples=10)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gristmill"))

# The processes of `pytest -n` share the cores. If each started several torch threads, they would compete for cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: tests that send Ctrl-C would hang.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption(
        "--device",
        choices=["cuda", "emulator"],
        help="count and merge there wherever device='auto' may: on the GPU, or on the emulator of tests/gpu",
    )
    parser.addoption(
        "--record-rows",
        action="store_true",
        help="write the outcomes of tests/faults/rows to runs.json, for the table in docs/reliability.md",
    )


@pytest.fixture(autouse=True, scope="session")
def device_of_the_suite(request, pytestconfig):
    """With --device, let `auto` take a GPU for texts of every size. So the tests of the CPU become tests of a GPU."""
    name = request.config.getoption("--device")
    if name is None:
        yield
        return
    from gristmill.gpu import devices

    sys.path.append(str(Path(__file__).with_name("gpu")))
    from emulator import EmulatedDriver, InstalledGpus

    if name == "emulator":
        drivers = (EmulatedDriver(pytestconfig.cache.mkdir("gpu-emulator")),)
    else:
        drivers = devices.open_gpus()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "gpus", InstalledGpus(drivers))
        for each in ("TEXT", "WORDS"):
            patch.setattr(devices, each, devices.Crossover(getattr(devices, each).unit, warm=1, cold=1, per_thread=0))
        # An iterable has no size, and would be counted on the CPU.
        choose = devices.Device.for_text
        patch.setattr(
            devices.Device,
            "for_text",
            lambda device, size, **options: choose(device, 1 if size is None else size, **options),
        )
        yield


def pytest_configure(config):
    # The tests of this warning enable it themselves.
    config.addinivalue_line("filterwarnings", "ignore::gristmill.SlowPatternWarning")


def pytest_collection_finish():
    """Exclude objects that live as long as the suite from garbage collection, which training runs several times."""
    gc.collect()
    gc.freeze()
