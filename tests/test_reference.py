"""Compare the reference, which is the oracle of all other tests, with closed forms and with independent plain loops."""

from __future__ import annotations

import ast
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import regex

from gristmill import reference
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from gristmill.reference import pipeline
from texts import STORY, random_story

TIE_BREAKS = ["greatest-bytes", "smallest-ids", "huggingface", "first-seen"]


def test_the_example_of_the_cs336_handout_gives_its_published_merges():
    words = {b"low": 5, b"lower": 2, b"widest": 3, b"newest": 6}
    published = "s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r"
    expected = [tuple(part.encode() for part in merge.split(" ")) for merge in published.split(", ")]
    assert reference.learn_merges(words, 12) == expected


def test_the_example_of_wikipedia_merges_aa_then_ab_then_both():
    merges = reference.learn_merges({b"aaabdaaabac": 1}, 3, tie_break="first-seen")
    assert [left + right for left, right in merges] == [b"aa", b"aaa", b"aaab"]
    assert reference.encode("aaabdaaabac", merges, pattern="(?s:.+)") == [258, 100, 258, 97, 99]


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
def test_overlapping_pair_aaa_counts_twice_and_merges_left_to_right(tie_break):
    # (a,a) occurs twice in aaa and wins against (x,y), which occurs once
    assert reference.learn_merges({b"xy": 1, b"aaa": 1}, 1, tie_break=tie_break) == [(b"a", b"a")]
    assert reference.merge_pair([b"a"] * 5, (b"a", b"a")) == [b"aa", b"aa", b"a"]


def test_equal_counts_are_decided_by_each_tie_break_in_its_own_way():
    # four pairs with count 1; in HF's alphabet the space (U+0120) comes after every letter, and ! before
    words = {b"mn": 1, b" b": 1, b"!a": 1, b"zy": 1}
    first = {name: reference.learn_merges(words, 1, tie_break=name)[0] for name in TIE_BREAKS}
    assert first == {
        "greatest-bytes": (b"z", b"y"),
        "smallest-ids": (b" ", b"b"),
        "huggingface": (b"!", b"a"),
        "first-seen": (b"m", b"n"),
    }


def test_greatest_bytes_compares_the_left_token_as_a_whole_before_the_right():
    # (a, bz) against (ab, a): joined, "abz" > "aba"; but the rule compares left first, and b"ab" > b"a"
    tied = [(b"a", b"bz"), (b"ab", b"a")]
    assert pipeline._choose(tied, "greatest-bytes", []) == (b"ab", b"a")


def test_first_seen_is_the_first_in_the_text_as_merged_so_far_like_minbpe():
    text = random_story(3, 400)
    assert reference.train([text], 256 + 120, tie_break="first-seen") == minbpe(text, 120)


def minbpe(text: str, num_merges: int) -> list[tuple[bytes, bytes]]:
    """The training loop of Karpathy's minbpe (RegexTokenizer.train), over every chunk of the text."""
    chunks = [list(chunk.encode()) for chunk in regex.findall(NATIVE_PATTERNS["gpt2"], text)]
    vocab = {byte: bytes([byte]) for byte in range(256)}
    merges = []
    for i in range(num_merges):
        stats: dict[tuple[int, int], int] = {}
        for ids in chunks:
            for pair in pairwise(ids):
                stats[pair] = stats.get(pair, 0) + 1
        left, right = max(stats, key=stats.__getitem__)
        for ids in chunks:
            j = 0
            while j + 1 < len(ids):
                if (ids[j], ids[j + 1]) == (left, right):
                    ids[j : j + 2] = [256 + i]
                j += 1
        merges.append((vocab[left], vocab[right]))
        vocab[256 + i] = vocab[left] + vocab[right]
    return merges


@pytest.mark.parametrize("tie_break", TIE_BREAKS)
@pytest.mark.parametrize("max_token_bytes", [None, 3])
def test_incremental_counts_give_the_merges_of_the_naive_loop(tie_break, max_token_bytes):
    options = {"tie_break": tie_break, "max_token_bytes": max_token_bytes}
    naive = reference.train([STORY, random_story(1, 300)], 400, **options)
    quick = reference.train([STORY, random_story(1, 300)], 400, **options, learn=reference.learn_merges_incrementally)
    assert naive == quick
    assert len(naive) > 50


def test_a_token_is_never_longer_than_max_token_bytes_and_shorter_ones_still_merge():
    merges = reference.learn_merges({b"abcdef": 9, b"xy": 1}, 10, max_token_bytes=3)
    assert max(len(left + right) for left, right in merges) <= 3
    assert (b"x", b"y") in merges


def test_training_stops_when_no_pair_is_left():
    assert len(reference.learn_merges({b"abc": 1}, 100)) == 2
    assert reference.learn_merges({b"a": 7}, 100) == []
    assert reference.learn_merges({}, 100) == []


def test_no_piece_crosses_a_special_token_and_white_space_before_one_is_at_an_end_of_text():
    words = reference.count_words(["a  <s>b", "x  y"], special_tokens=["<s>"])
    # at the end of a text the two spaces are one piece; before a letter the second belongs to it
    assert words == {b"a": 1, b"  ": 1, b"b": 1, b"x": 1, b" ": 1, b" y": 1}


def test_of_overlapping_specials_the_leftmost_wins_and_then_the_longest():
    parts = reference.split_at_specials(b"<s><s>>ab", ["<s>", "<s>>", "s><"])
    assert parts == [b"", b"<s>", b"", b"<s>>", b"ab"]


def test_text_that_the_pattern_skips_is_not_lost():
    assert list(reference.pretokenize(b"ab--cd!", r"[a-z]+")) == [b"ab", b"--", b"cd", b"!"]


def test_each_invalid_byte_is_a_character_that_is_neither_letter_nor_space():
    pieces = list(reference.pretokenize(b"ab\xe2\x82cd\xff \xff1", "gpt2"))
    assert pieces == [b"ab", b"\xe2\x82", b"cd", b"\xff", b" \xff", b"1"]


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_pieces_joined_are_the_text(pattern):
    data = STORY.encode() + bytes(range(256))
    assert b"".join(reference.pretokenize(data, pattern)) == data


def test_encode_replays_training_on_the_training_text():
    merges = reference.train([STORY], 400)
    words = reference.count_words([STORY], special_tokens=())
    tokens: Counter[bytes] = Counter()
    vocab = [bytes([byte]) for byte in range(256)] + [left + right for left, right in merges]
    for word, count in words.items():
        sequence = [bytes([byte]) for byte in word]
        for pair in merges:  # the other way to encode: every merge in turn
            sequence = reference.merge_pair(sequence, pair)
        for token in sequence:
            tokens[token] += count
    assert tokens == Counter(vocab[id] for id in reference.encode(STORY, merges))


def test_decode_gives_back_what_was_encoded_with_specials():
    merges = reference.train([STORY], 300)
    ids = reference.encode(STORY + "<s>x<s>", merges, special_tokens=["<s>"])
    assert ids[-1] == 256 + len(merges)
    assert reference.decode(ids, merges, special_tokens=["<s>"]) == (STORY + "<s>x<s>").encode()


def test_the_huggingface_order_has_every_byte_once_with_printable_ones_first():
    order = reference.HUGGINGFACE_BYTE_ORDER
    assert sorted(order) == list(range(256))
    assert (order[0], order[188], order[188 + 32]) == (ord("!"), 0, 32)


def test_the_reference_is_short_enough_to_read_in_one_sitting():
    source = Path(pipeline.__file__).read_text(encoding="utf-8")
    documented = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Module | ast.FunctionDef)]
    docstrings = [node.body[0] for node in documented if ast.get_docstring(node)]
    num_docstring_lines = sum((each.end_lineno or 0) - each.lineno + 1 for each in docstrings)
    assert len(source.splitlines()) - num_docstring_lines < 220
