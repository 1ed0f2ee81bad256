"""Settings of the whole suite. Texts that the tests share are in texts.py, beside this file."""

from __future__ import annotations

import os

from hypothesis import settings

# The same examples in every run; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("gristmill", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gristmill"))


def pytest_configure(config):
    # The one test that is about this warning asks for it.
    config.addinivalue_line("filterwarnings", "ignore::gristmill.SlowPatternWarning")
