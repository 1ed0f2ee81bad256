"""merge: the merges of the core equal those of the naive algorithm, for every tie-break."""

from __future__ import annotations

import pytest

import gristmill as gm
from gristmill import Words, _core, reference
from gristmill.arguments import TIE_BREAKS
from gristmill.pretokenize import NATIVE_PATTERNS
from texts import STORY, random_story, random_text

TEXTS = [STORY, random_story(1, 800), "<s>" + STORY, random_text(2, 500)]


def test_the_tie_breaks_of_python_and_of_the_core_are_the_same():
    assert set(TIE_BREAKS) == set(_core.TIE_BREAKS)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_merges_are_those_of_the_naive_loop(pattern, tie_break):
    options = {"pattern": pattern, "tie_break": tie_break, "special_tokens": ["<s>"]}
    tok = gm.train_tokenizer(TEXTS, vocab_size=600, **options)
    learn = reference.learn_merges_incrementally
    assert tok.merges == reference.train(TEXTS, 600, **options, learn=learn)
    assert tok.special_tokens == {"<s>": 599}
    assert (tok.vocab_size, tok.pattern, tok.tie_break) == (600, pattern, tie_break)


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("loop", ["sequential", "rounds"])
def test_both_loops_of_the_core_give_the_merges_of_the_naive_one_to_the_last_pair(tie_break, loop):
    counts = reference.count_words([STORY, random_text(3, 300)], special_tokens=())
    words = Words.from_counts(counts)
    run = _core.learn_merges(words.table, num_merges=100_000, tie_break=tie_break, loop=loop, num_threads=2)
    expected = reference.learn_merges_incrementally(counts, 100_000, tie_break=tie_break)
    assert gm.Tokenizer(run.merges).merges == expected


@pytest.mark.parametrize("loop", ["sequential", "rounds"])
def test_the_count_of_each_merge_is_that_of_its_pair_when_it_was_chosen(loop):
    run = _core.learn_merges(Words.from_counts({"aaa": 3, "ab": 4}).table, num_merges=9, loop=loop)
    # (a,a) at 2 places of 3 words, (a,b) 4, then (aa,a) 3
    assert run.counts.tolist() == [6, 4, 3]


@pytest.mark.filterwarnings("ignore::gristmill.EarlyStopWarning")
def test_overlapping_pair_aaa_merges_left_to_right():
    for length in range(2, 40):
        words = {b"a" * length: 1, b"xy": 1}
        tok = gm.train_tokenizer(Words.from_counts(words, special_tokens=()), vocab_size=300)
        assert tok.merges == reference.learn_merges(words, 44), length


def test_max_token_bytes_bounds_every_token():
    tok = gm.train_tokenizer(TEXTS, vocab_size=400, max_token_bytes=4, special_tokens=["<s>"])
    assert max(len(token) for id, token in tok.vocab.items() if id < 399) == 4
    learn = reference.learn_merges_incrementally
    assert tok.merges == reference.train(TEXTS, 400, special_tokens=["<s>"], max_token_bytes=4, learn=learn)
