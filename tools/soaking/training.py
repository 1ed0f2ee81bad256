"""Tokenizers trained with a memory limit, so that counting spills to disk. The result is the same each time."""

from __future__ import annotations

import random

import gristmill as gm
from soaking.kind import Kind, check_equal


class Training(Kind):
    """Trains on many distinct words with random limits and numbers of threads."""

    def prepare(self) -> None:
        """Train without a limit."""
        self.corpus = self.inputs / "words.txt"
        self.expected = self._train(None, 2).fingerprint

    def work(self, source: random.Random, thread: int) -> str:
        """Train with a limit, and compare the fingerprint."""
        limit, num_threads = source.randrange(32, 41) << 20, source.randrange(1, 4)
        tok = self._train(limit, num_threads)
        check_equal(tok.fingerprint, self.expected, f"memory_limit={limit}, num_threads={num_threads}")
        assert tok.profile is not None
        check_equal(bool(tok.profile.stages[0].num_spilled_runs), True, f"spilled with memory_limit={limit}")
        return "train with spills"

    def _train(self, limit: int | None, num_threads: int) -> gm.Tokenizer:
        return gm.train_tokenizer(
            self.corpus,
            vocab_size=600,
            min_frequency=2,
            memory_limit=limit,
            num_threads=num_threads,
            progress=None,
        )
