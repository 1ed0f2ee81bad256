"""Parity with rustbpe: merges with tie_break="smallest-ids"."""

from __future__ import annotations

import pytest

import gristmill as gm
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from texts import STORY, random_story, random_text

rustbpe = pytest.importorskip("rustbpe")

DOCUMENTS = [STORY, *(random_story(seed, 400) for seed in range(10, 15)), random_text(2, 800, invalid=False).decode()]


def train_rustbpe(documents, vocab_size, pattern):
    tok = rustbpe.Tokenizer()
    tok.train_from_iterator(iter(documents), vocab_size, pattern=pattern)
    return {bytes(token): rank for token, rank in tok.get_mergeable_ranks()}


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
@pytest.mark.parametrize("vocab_size", [300, 700])
def test_the_vocabulary_is_that_of_rustbpe(pattern, vocab_size):
    ours = gm.train_tokenizer(
        DOCUMENTS, vocab_size=vocab_size, pattern=pattern, tie_break="smallest-ids", special_tokens=()
    )
    theirs = train_rustbpe(DOCUMENTS, vocab_size, NATIVE_PATTERNS[pattern])
    assert {token: id for id, token in ours.vocab.items()} == theirs


def test_the_vocabulary_of_a_custom_pattern_is_that_of_rustbpe():
    # the expression rustbpe uses by default: cl100k without its end-of-text rule
    pattern = (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    )
    ours = gm.train_tokenizer(
        DOCUMENTS, vocab_size=500, pattern=pattern, tie_break="smallest-ids", num_threads=2, special_tokens=()
    )
    assert {token: id for id, token in ours.vocab.items()} == train_rustbpe(DOCUMENTS, 500, pattern)
