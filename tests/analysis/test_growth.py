"""Compression by vocabulary size and tokens rarer than expected, against truncated tokenizers."""

import numpy as np
import pytest

import gristmill as gm
from gristmill.analysis.growth import compression_curve, count_merges, unexpectedly_rare_tokens
from gristmill.analysis.usage import measure
from gristmill.sample_corpus import stories
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary

STORIES = [story for story, _ in zip(stories(), range(40), strict=False)]
TOKENIZER = gm.train_tokenizer(STORIES, vocab_size=900, special_tokens=["<s>"], progress=None)
TEXTS = {
    "a story": STORIES[0],
    "another text": "Das ist ein völlig anderer Text, mit aaaaaaaaa und 日本語.",
    "repeated": "aaaa " * 500,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_smaller_vocabulary_has_the_bytes_per_token_of_its_truncated_tokenizer(text):
    data = text.encode()
    usage = measure(TOKENIZER, data)
    sizes, ratios = compression_curve(TOKENIZER, usage.counts, len(data), num_sizes=25)
    assert (sizes[0], sizes[-1]) == (257, 900)
    for size, ratio in zip(sizes.tolist(), ratios.tolist(), strict=True):
        assert ratio == len(data) / len(TOKENIZER.truncated(size).encode(data)), size


def test_merges_are_counted_in_the_vocabulary_of_another_tool():
    """Other ids, and merges that are not in the order of the ids."""
    plain = TOKENIZER.merges
    order = np.random.default_rng(0).permutation(256 + len(plain))
    tokens = [bytes([byte]) for byte in range(256)] + [left + right for left, right in plain]
    id_of = {token: int(id) for token, id in zip(tokens, order, strict=True)}
    parts = TokenizerParts(Vocabulary.from_pairs(id_of, plain, {}), TOKENIZER.parts.pattern, "greatest-bytes")
    other = gm.Tokenizer.from_parts(parts)
    data = STORIES[1].encode()
    numbers = count_merges(other, measure(other, data).counts)
    assert numbers.tolist() == count_merges(TOKENIZER, measure(TOKENIZER, data).counts).tolist()


def test_a_vocabulary_with_tokens_that_no_merge_creates_is_refused():
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"abc": 300}
    vocabulary = Vocabulary.from_ranks(ranks, {})
    assert vocabulary.other_tokens
    tokenizer = gm.Tokenizer.from_parts(TokenizerParts(vocabulary, TOKENIZER.parts.pattern, "greatest-bytes"))
    usage = measure(tokenizer, "abc abc")
    assert count_merges(tokenizer, usage.counts) is None
    assert compression_curve(tokenizer, usage.counts, 7) is None
    assert [len(column) for column in unexpectedly_rare_tokens(tokenizer, usage.counts)] == [0, 0, 0]


def test_no_curve_without_text_or_merges():
    assert compression_curve(TOKENIZER, measure(TOKENIZER, b"").counts, 0) is None
    only_bytes = gm.Tokenizer([])
    assert compression_curve(only_bytes, measure(only_bytes, b"text").counts, 4) is None


def test_a_token_of_another_corpus_is_rarer_than_expected_and_a_part_of_longer_tokens_is_not():
    foreign = " zyxwv" * 2000
    tokenizer = gm.train_tokenizer([*STORIES, foreign], vocab_size=700, progress=None)
    text = "".join(STORIES)
    ids, applied, expected = unexpectedly_rare_tokens(tokenizer, measure(tokenizer, text).counts)
    vocab = tokenizer.vocab
    assert b" zyxwv" in [vocab[id] for id in ids.tolist()]
    assert applied.tolist() == sorted(applied.tolist()) and (4 * (applied + 1) <= expected + 2).all()
    # Such as " th", which is nearly always a part of " the".
    alone, used = (
        measure(tokenizer, text).counts[256:350],
        count_merges(tokenizer, measure(tokenizer, text).counts)[:94],
    )
    parts = 256 + np.flatnonzero((used > 200) & (10 * alone < used))
    assert len(parts) and not set(parts.tolist()) & set(ids.tolist())
    assert [
        len(column) for column in unexpectedly_rare_tokens(tokenizer, measure(tokenizer, foreign + text).counts)
    ] == [0] * 3
