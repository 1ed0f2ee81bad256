"""merge: the count of each merge in the profile is that of its pair when it was chosen."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import gristmill as gm
from gristmill import Words, _core, reference
from texts import STORY, random_text

WORDS = reference.count_words([STORY, random_text(5, 400), "aaaa aaaaaaa aaaaaaaaaaaa"], special_tokens=())


def counts_of(words, merges):
    """Count the pair of each merge on the words as they are before it. "aaa" has the pair (a, a) twice."""
    split = [([bytes([byte]) for byte in word], count) for word, count in words.items()]
    found = []
    for pair in merges:
        found.append(sum(count * list(pairwise(word)).count(pair) for word, count in split))
        split = [(reference.merge_pair(word, pair), count) for word, count in split]
    return found


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("loop", ["sequential", "rounds"])
def test_counts_of_every_loop_are_those_of_a_recount(loop, num_threads):
    run = _core.learn_merges(Words.from_counts(WORDS).table, num_merges=400, loop=loop, num_threads=num_threads)
    assert run.counts.tolist() == counts_of(WORDS, gm.Tokenizer(run.merges).merges)


def test_the_profile_of_a_training_has_the_counts():
    tok = gm.train_tokenizer(Words.from_counts(WORDS), vocab_size=456, progress=None)
    counts = tok.profile.merge_counts
    assert counts.dtype == np.uint64 and counts.tolist() == counts_of(WORDS, tok.merges)
    assert np.all(counts[1:] <= counts[:-1])


def test_an_extended_tokenizer_has_counts_of_the_new_merges_only():
    small = gm.Tokenizer([(b"t", b"h"), (b"th", b"e")])
    words = Words.from_counts(WORDS, special_tokens=())
    large = small.extended(words, vocab_size=300, progress=None, tie_break="greatest-bytes")
    assert large.merges[:2] == small.merges
    assert large.profile.merge_counts.tolist() == counts_of(WORDS, large.merges)[2:]


def test_encoding_has_no_merge_counts(tmp_path):
    tok = gm.Tokenizer([(b"a", b"a")], special_tokens=["<|endoftext|>"])
    run = gm.encode_corpus(["aab"], tok, out=tmp_path / "shards", progress=None)
    assert run.profile.merge_counts is None
