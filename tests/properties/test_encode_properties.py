"""Properties of encoding that hold for every vocabulary and text, tested with hypothesis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import published
from gristmill import _core, reference
from gristmill.tokenizer.vocabulary import Vocabulary
from texts import byte_texts

NUM_BYTES = 256

# Few letters, so that tokens overlap in every way. é and 中 have bytes that are not letters.
units = st.sampled_from([b"a", b"b", b" ", b"\xc3", b"\xa9", "中".encode(), b"\n"])
tokens = st.lists(units, min_size=2, max_size=6).map(b"".join)
token_lists = st.lists(tokens, max_size=25, unique=True)
unit_texts = st.lists(units, max_size=80).map(b"".join)
patterns = st.sampled_from(_core.PATTERNS)
special_lists = st.lists(
    st.sampled_from(["<s>", "<s>>", "a", "aa", "a b", " ", "\n\n", "b \n", "é", "<s> <s>"]), unique=True, max_size=5
)


@st.composite
def rank_tables(draw):
    """Return token -> id, not necessarily in the order of the merges."""
    table = [bytes([byte]) for byte in range(NUM_BYTES)] + draw(token_lists)
    order = draw(st.permutations(range(NUM_BYTES - 8, len(table)))) if draw(st.booleans()) else None
    ids = [*range(NUM_BYTES - 8), *order] if order else range(len(table))
    return dict(zip(table, ids, strict=True))


@st.composite
def pair_vocabularies(draw):
    """Return merges of earlier tokens. Several may create the same token, and some tokens may have no merge."""
    id_of = {bytes([byte]): byte for byte in range(NUM_BYTES)}
    made = [b"a", b"b", b" ", b"\xc3", b"\xa9"]
    pairs: dict[tuple[bytes, bytes], None] = {}
    for left, right in draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=25)):
        pair = made[left % len(made)], made[right % len(made)]
        if len(pair[0] + pair[1]) <= 24:
            pairs[pair] = None
            if id_of.setdefault(pair[0] + pair[1], len(id_of)) == len(id_of) - 1:
                made.append(pair[0] + pair[1])
    for token in draw(st.lists(tokens, max_size=3)):
        id_of.setdefault(token, len(id_of))
    ranked = draw(st.permutations(list(pairs))) if draw(st.booleans()) else list(pairs)
    return Vocabulary.from_pairs(id_of, ranked, {}, whole_pieces=draw(st.booleans()))


def encode_plainly(piece: bytes, vocabulary: Vocabulary) -> list[int]:
    for id, token in vocabulary.other_tokens.items():
        if vocabulary.whole_pieces and token == piece:
            return [id]
    rows = vocabulary.merges.tolist()
    rank_of = {(left, right): rank for rank, (left, right, _) in reversed(list(enumerate(rows)))}
    ids = [int(vocabulary.byte_ids[byte]) for byte in piece]
    while True:
        ranks = [rank_of.get((ids[i], ids[i + 1]), len(rows)) for i in range(len(ids) - 1)]
        best = min(ranks, default=len(rows))
        if best == len(rows):
            return ids
        at = ranks.index(best)
        ids[at : at + 2] = [rows[best][2]]


@given(rank_tables(), unit_texts, patterns)
@settings(max_examples=150)
def test_ids_of_ranks_are_those_of_the_rule_of_tiktoken(table, text, pattern):
    encoder = published.encoder_of(Vocabulary.from_ranks(table, {}), pattern)
    rule = encoder.special_rule([], [])
    assert encoder.encode_piece(text) == (published.encode_by_ranks(text, table) if text else [])
    expected = [id for piece in reference.pretokenize(text, pattern) for id in published.encode_by_ranks(piece, table)]
    for _ in range(2):  # computed, then cached
        assert encoder.encode(text, rule) == expected
    assert encoder.decode_list(expected) == text


@given(rank_tables(), unit_texts)
@settings(max_examples=100)
def test_ids_of_ranks_are_those_of_tiktoken_itself(table, text):
    tiktoken = pytest.importorskip("tiktoken")
    text = text.decode("utf-8", "ignore")
    theirs = tiktoken.Encoding("any", pat_str=r" ?\S+|\s+", mergeable_ranks=table, special_tokens={})
    encoder = published.encoder_of(Vocabulary.from_ranks(table, {}), None)
    # The expression matches as much as possible, so the text is one piece.
    for word in text.split():
        assert encoder.encode_piece(word.encode()) == theirs.encode_ordinary(word)


@given(pair_vocabularies(), unit_texts, patterns, st.sampled_from([0, 1, 300_000]))
@settings(max_examples=200)
def test_ids_of_pairs_are_those_of_the_plain_loop_whatever_the_cache_holds(vocabulary, text, pattern, cache_bytes):
    encoder = published.encoder_of(vocabulary, pattern, cache_bytes=cache_bytes)
    rule = encoder.special_rule([], [])
    assert encoder.encode_piece(text) == encode_plainly(text, vocabulary)
    pieces = list(reference.pretokenize(text, pattern))
    expected = [id for piece in pieces for id in encode_plainly(piece, vocabulary)]
    for _ in range(2):
        assert encoder.encode(text, rule) == expected
    assert encoder.decode_bytes(np.array(expected, np.uint32)) == text


@given(st.lists(byte_texts, max_size=6), patterns, special_lists, st.integers(1, 3))
def test_a_batch_has_the_ids_of_its_texts_and_specials_are_where_the_reference_cuts(texts, pattern, specials, threads):
    encoder = published.encoder_of(Vocabulary.from_merges(np.array([[97, 97], [97, 98]], np.uint32), specials), pattern)
    ids = list(range(258, 258 + len(specials)))
    rule = encoder.special_rule(ids, [])
    merges = [(b"a", b"a"), (b"a", b"b")]
    expected = [reference.encode(text, merges, pattern=pattern, special_tokens=specials) for text in texts]
    assert [encoder.encode(text, rule) for text in texts] == expected
    flat, offsets = encoder.encode_batch(texts, rule, threads)
    assert flat.tolist() == [id for ids in expected for id in ids]
    assert offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
    for text, ids in zip(texts, expected, strict=True):
        assert encoder.count_tokens(text, rule, threads) == len(ids)
        assert encoder.encode_array(text, rule, threads).tolist() == ids
        assert encoder.encode_dropout(text, rule, 0.0, 1).tolist() == ids
        assert encoder.decode_bytes(encoder.encode_dropout(text, rule, 0.5, 1)) == text


@given(byte_texts, byte_texts, patterns, special_lists, special_lists, st.integers(0, 10))
@settings(max_examples=200)
def test_a_text_may_be_cut_at_its_last_cut_whatever_follows(text, following, pattern, allowed, disallowed, start):
    specials = sorted({*allowed, *disallowed})
    encoder = published.encoder_of(Vocabulary.from_merges(np.array([[32, 97], [97, 10]], np.uint32), specials), pattern)
    id_of = {special: 258 + i for i, special in enumerate(specials)}
    rule = encoder.special_rule([id_of[s] for s in allowed], [id_of[s] for s in disallowed])
    cut = encoder.last_cut(text, start, rule)
    assert cut == 0 or start < cut < len(text)
    whole = text + following
    for chosen in (allowed, disallowed):
        one = encoder.special_rule([id_of[special] for special in chosen], [])
        assert encoder.encode(whole[:cut], one) + encoder.encode(whole[cut:], one) == encoder.encode(whole, one)


@given(byte_texts, special_lists)
def test_a_forged_special_is_the_leftmost_and_the_longest(text, specials):
    encoder = published.encoder_of(Vocabulary.from_merges(np.empty((0, 2), np.uint32), specials), "gpt2")
    ids = list(range(256, 256 + len(specials)))
    parts = reference.split_at_specials(text, specials)
    expected = (len(parts[0]), 256 + specials.index(parts[1].decode())) if len(parts) > 1 else None
    rule = encoder.special_rule([], ids)
    if expected is None:
        assert encoder.encode(text, rule) == list(text)
    else:
        with pytest.raises(_core.ForgedSpecial) as raised:
            encoder.encode(text, rule)
        assert raised.value.args == (0, *expected)
