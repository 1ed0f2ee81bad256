"""Settings of the whole suite. Texts that the tests share are in texts.py, beside this file."""

from __future__ import annotations

import gc
import os
import signal

from hypothesis import settings

# The same examples in every run; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("gristmill", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gristmill"))

# The processes of `pytest -n` share the cores. If each started several torch threads, they would compete for cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: tests that send Ctrl-C would hang.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    # The tests of this warning enable it themselves.
    config.addinivalue_line("filterwarnings", "ignore::gristmill.SlowPatternWarning")


def pytest_collection_finish():
    """Exclude objects that live as long as the suite from garbage collection, which training runs several times."""
    gc.collect()
    gc.freeze()
