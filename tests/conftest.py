"""Settings of the whole suite. Texts that the tests share are in texts.py, beside this file."""

from __future__ import annotations

import os
import warnings

import pytest
from hypothesis import settings

from gristmill import SlowPatternWarning

# The same examples in every run; HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("gristmill", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gristmill"))


@pytest.fixture(autouse=True)
def _quiet_about_slow_patterns():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowPatternWarning)
        yield
