"""Figures of a tokenizer, against counts in plain Python."""

import math
from collections import Counter

import numpy as np
import pytest

import gristmill as gm
from gristmill.analysis.usage import count_characters, count_words, measure, renyi_efficiency, sum_of, zipf_curve
from gristmill.analysis.vocabulary import length_histogram, token_classes, token_lengths
from gristmill.sample_corpus import stories

STORIES = [story for story, _ in zip(stories(), range(30), strict=False)]
TOKENIZER = gm.train_tokenizer(STORIES, vocab_size=700, special_tokens=["<|end|>", "<s>"], progress=None)
ONLY_BYTES = gm.Tokenizer([])
TEXTS = {
    "a story": STORIES[0].encode(),
    "nothing": b"",
    "one token": b"a",
    "many scripts": "Ünïcode, Привет мир! 日本語です。\u3000空白 👩‍👩‍👧 नमस्ते\u00a0x".encode(),
    "invalid UTF-8": b"caf\xc3 \xff\xfe ok\x80\x80\xf0\x9f\x98",
    "spaces": b" " * 1_000_000,
    "white space of Unicode": "a\u2028b\u3000c\x1cd\x85e\u00a0".encode(),
}


@pytest.mark.parametrize("tokenizer", [TOKENIZER, ONLY_BYTES], ids=["trained", "only bytes"])
@pytest.mark.parametrize("data", TEXTS.values(), ids=TEXTS)
def test_figures_are_those_of_plain_python(tokenizer, data):
    usage = measure(tokenizer, data)
    counts = Counter(tokenizer.encode(data))
    text = data.decode("utf-8", "surrogateescape")
    assert {id: count for id, count in enumerate(usage.counts.tolist()) if count} == counts
    assert (usage.num_bytes, usage.num_characters, usage.num_words) == (len(data), len(text), len(text.split()))
    num_tokens = sum(counts.values())
    assert (usage.num_tokens, usage.num_used) == (num_tokens, len(counts))
    assert usage.bytes_per_token == (len(data) / num_tokens if num_tokens else None)
    assert usage.fertility == (num_tokens / len(text.split()) if text.split() else None)
    specials = tokenizer.special_tokens.values()
    assert usage.unused.tolist() == [id for id in tokenizer.vocab if id not in counts and id not in specials]
    if not num_tokens:
        assert usage.renyi_efficiency is None
        return
    total = sum((count / num_tokens) ** 2.5 for count in counts.values())
    expected = math.log(total) / (1 - 2.5) / math.log(len(tokenizer.vocab))
    assert usage.renyi_efficiency == pytest.approx(expected, abs=1e-12)


def test_renyi_efficiency_falls_when_one_token_dominates():
    even, uneven = np.full(100, 10), np.array([901, *[1] * 99])
    assert renyi_efficiency(even, 100) == pytest.approx(1)
    assert renyi_efficiency(uneven, 100) == pytest.approx(
        math.log((0.901**2.5) + 99 * 0.001**2.5) / -1.5 / math.log(100)
    )
    # The same use of a larger vocabulary is less efficient.
    assert renyi_efficiency(even, 200) < renyi_efficiency(even, 100)


def test_a_special_token_is_never_unused_and_counts_where_it_is_allowed():
    id = TOKENIZER.special_tokens["<s>"]
    assert measure(TOKENIZER, "a<s>").counts[id] == 0
    assert measure(TOKENIZER, "a<s>", allowed_special="all").counts[id] == 1
    assert id not in measure(TOKENIZER, "a").unused


def test_the_sum_of_texts_counts_a_token_as_unused_only_if_no_text_uses_it():
    parts = [STORIES[0].encode(), STORIES[1].encode(), b""]
    total = sum_of([measure(TOKENIZER, part) for part in parts])
    ids = [id for part in parts for id in TOKENIZER.encode(part)]
    assert total.counts.tolist() == np.bincount(ids, minlength=TOKENIZER.vocab_size).tolist()
    assert total.unused.tolist() == [
        id for id in TOKENIZER.vocab if id not in ids and id not in TOKENIZER.special_tokens.values()
    ]
    assert total.num_bytes == sum(map(len, parts))


def test_words_end_at_every_white_space_that_split_knows():
    for code in range(0x110000):
        if chr(code).isspace():
            assert count_words(f"a{chr(code)}é".encode()) == 2, hex(code)
    assert count_words(b"\x80 \xff") == 2
    assert count_characters(b"\x80 \xff") == 3


def test_the_zipf_curve_begins_with_the_most_frequent_token_and_ends_with_the_rarest():
    counts = np.array([0, 5, 1, 100, 7] + [2] * 3000)
    ranks, shown = zipf_curve(counts, max_points=50)
    ordered = sorted((count for count in counts.tolist() if count), reverse=True)
    assert len(ranks) <= 50
    assert (ranks[0], ranks[-1]) == (1, 3004)
    assert shown.tolist() == [ordered[rank - 1] for rank in ranks.tolist()]
    assert [len(column) for column in zipf_curve(np.zeros(4, np.int64))] == [0, 0]


def test_classes_of_tokens():
    merges = [(b"\xe2", b"\x80"), (b" ", b" "), (b"\xc3", b"\xa9"), (b"a", b"\xc3"), (b"\n", b"\n"), (b"lo", b"w")]
    tokenizer = gm.Tokenizer([(b"l", b"o"), *merges], special_tokens=["<s>", "é "])
    classes = token_classes(tokenizer)
    vocab = tokenizer.vocab
    assert dict(classes.specials) == {"<s>": 263, "é ": 264}
    assert classes.ordinary.tolist() == list(range(263))
    assert [vocab[id] for id in classes.whitespace if id > 255] == [b"  ", b"\n\n"]
    assert [vocab[id] for id in classes.partial_utf8 if id > 255] == [b"\xe2\x80", b"a\xc3"]
    assert [id for id in classes.partial_utf8 if id < 256] == list(range(128, 256))
    assert vocab[classes.longest[0]] == b"low"
    assert sorted(classes.longest.tolist()) == classes.ordinary.tolist()
    lengths = token_lengths(tokenizer)
    assert lengths.tolist() == [len(vocab[id]) for id in range(265)]
    assert length_histogram(tokenizer).tolist() == [0, 256, 6, 1]


def test_an_id_without_a_token_has_no_length():
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 300}
    from gristmill.tokenizer.parts import TokenizerParts
    from gristmill.tokenizer.vocabulary import Vocabulary

    parts = TokenizerParts(Vocabulary.from_ranks(ranks, {"<s>": 400}), TOKENIZER.parts.pattern, "greatest-bytes")
    tokenizer = gm.Tokenizer.from_parts(parts)
    assert np.flatnonzero(token_lengths(tokenizer)).tolist() == [*range(256), 300, 400]
    usage = measure(tokenizer, "abab")
    assert usage.num_vocabulary == 258
    assert 299 not in usage.unused
