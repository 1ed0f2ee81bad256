"""The sample corpus that several pictures use: children's stories, the same bytes on every machine."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import gristmill as gm
from gristmill.sample_corpus import write_sample_corpus


@cache
def sample_text(size: int = 100_000) -> bytes:
    """Return the first `size` bytes, or a little more, of the sample corpus."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stories.txt"
        write_sample_corpus(path, size=size, seed=0)
        return path.read_bytes()


@cache
def sample_words() -> dict[bytes, int]:
    """Return the words of the sample corpus with their counts."""
    words = gm.count_words(gm.Documents([sample_text()]), progress=None)
    return dict(words.items())
