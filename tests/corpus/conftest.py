"""Small batches, so that small files have many of them."""

from __future__ import annotations

import pytest

from gristmill.corpus import batches


@pytest.fixture
def small_batches(monkeypatch):
    """Use batches of 100 bytes, and never cut the first 10 bytes of a document."""
    monkeypatch.setattr(batches, "BATCH_BYTES", 100)
    monkeypatch.setattr(batches, "MIN_STRETCH_BYTES", 10)
