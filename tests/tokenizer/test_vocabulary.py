"""Vocabulary: any layout of ids, unchanged, and checked if it comes from another source."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import gristmill as gm
from gristmill.pretokenize.patterns import resolve_pattern
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import MAX_ID, Vocabulary

BYTES = {bytes([byte]): byte for byte in range(256)}
TOKENS = BYTES | {b"ab": 256, b"abc": 257, b"bc": 300}


def tokenizer_of(vocabulary, pattern="gpt2"):
    return gm.Tokenizer.from_parts(TokenizerParts(vocabulary, resolve_pattern(pattern), "greatest-bytes"))


# Three constructors of equal vocabularies


def test_merges_ranks_and_pairs_give_the_same_vocabulary():
    plain = Vocabulary.from_merges(np.array([[97, 98], [256, 99]]), ["<s>"])
    id_of = {token: id for id, token in plain.tokens.items()}
    assert plain == Vocabulary.from_ranks(id_of, {"<s>": 258})
    assert plain == Vocabulary.from_pairs(id_of, [(b"a", b"b"), (b"ab", b"c")], {"<s>": 258})
    assert plain.is_plain
    assert plain.size == 259


def test_tokens_are_listed_by_id_and_the_size_counts_gaps():
    vocabulary = Vocabulary.from_pairs(TOKENS, [(b"a", b"b"), (b"ab", b"c")], {"<s>": 400, "<t>": 350})
    assert list(vocabulary.tokens) == [*range(258), 300]
    assert vocabulary.tokens[300] == b"bc"
    assert vocabulary.other_tokens == {300: b"bc"}
    assert list(vocabulary.special_tokens.items()) == [("<t>", 350), ("<s>", 400)]
    assert vocabulary.size == 401
    assert not vocabulary.is_plain


def test_a_token_that_its_own_bytes_do_not_lead_to_is_only_ever_a_whole_piece():
    unreachable = Vocabulary.from_ranks(BYTES | {b"ab": 256, b"abcd": 257}, {})
    assert unreachable.other_tokens == {257: b"abcd"}
    assert unreachable.whole_pieces
    tok = tokenizer_of(unreachable)
    assert tok.encode("abcd abcd") == [257, 32, 256, 99, 100]
    assert tok.decode([257]) == "abcd"


@pytest.mark.parametrize(("whole_pieces", "ids"), [(True, [258]), (False, [256, 99])])
def test_whole_pieces_are_asked_for_even_when_a_merge_makes_every_token(whole_pieces, ids):
    id_of = BYTES | {b"ab": 256, b"bc": 257, b"abc": 258}
    pairs = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")]
    vocabulary = Vocabulary.from_pairs(id_of, pairs, {}, whole_pieces=whole_pieces)
    assert tokenizer_of(vocabulary).encode("abc") == ids
    assert vocabulary.other_tokens == ({258: b"abc"} if whole_pieces else {})
    assert vocabulary.is_plain is not whole_pieces


@pytest.mark.parametrize("whole_pieces", [True, False])
def test_a_merge_of_a_token_that_no_merge_makes_never_happens(whole_pieces):
    id_of = BYTES | {b"ab": 256, b"abc": 257}
    vocabulary = Vocabulary.from_pairs(id_of, [(b"ab", b"c")], {}, whole_pieces=whole_pieces)
    assert tokenizer_of(vocabulary).encode("abc abc") == [*([257] if whole_pieces else b"abc"), *b" abc"]
    assert vocabulary.tokens[257] == b"abc"


def test_several_merges_may_make_one_token():
    id_of = BYTES | {b"ab": 256, b"bc": 257, b"abc": 258}
    vocabulary = Vocabulary.from_pairs(id_of, [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c"), (b"a", b"bc")], {})
    assert vocabulary.merges[:, 2].tolist() == [257, 256, 258, 258]
    assert tokenizer_of(vocabulary).encode("abc ab") == [258, 32, 256]
    assert vocabulary.tokens[258] == b"abc"


def test_a_merge_may_come_before_the_one_that_creates_its_part():
    num = 20_000  # quadratic time would take far too long
    made = np.arange(300, 300 + num)
    rows = np.column_stack([made - 1, np.full(num, 97), made]).astype(np.uint32)
    rows[0, 0] = 97
    byte_ids = np.arange(256, dtype=np.uint32)
    assert Vocabulary(rows[200::-1], byte_ids, {}, {}, False).tokens[499] == b"a" * 201
    rows[0, 0] = 300 + num  # never created
    with pytest.raises(gm.TokenizerFormatError, match=r"merge \d+ joins ids .* no merge can create it first"):
        _ = Vocabulary(rows[::-1], byte_ids, {}, {}, False).tokens


# Equality, hashing and pickling


def test_equal_fields_are_equal_hashed_equally_and_survive_pickle_and_copy():
    first, second = (Vocabulary.from_ranks(TOKENS, {"<s>": 400, "<t>": 350}) for _ in range(2))
    reordered = Vocabulary.from_ranks(dict(reversed(TOKENS.items())), {"<t>": 350, "<s>": 400})
    assert first == second == reordered
    assert hash(first) == hash(second) == hash(reordered)
    assert first != Vocabulary.from_ranks(TOKENS, {"<s>": 400})
    assert first != "a vocabulary"
    _ = first.tokens
    for twin in (pickle.loads(pickle.dumps(first)), copy.copy(first), copy.deepcopy(first)):
        assert twin == first
        assert not twin.merges.flags.writeable
    assert len(pickle.dumps(first)) == len(pickle.dumps(second))  # nothing derived is stored


# Invalid vocabularies


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"ab": 97}, "b'a' and b'ab' both have id 97"),
        ({b"ab": -1}, "id -1; ids must be from 0"),
        ({b"ab": MAX_ID + 1}, "ids must be from 0 to"),
        ({b"ab": 2**32 - 1}, "id 4294967295"),
        ({b"ab": 256.0}, r"id 256\.0"),
        ({b"ab": True}, "id True"),
        ({b"ab": "256"}, "id '256'"),
        ({b"": 256}, "at least one byte"),
        ({"ab": 256}, "at least one byte"),
    ],
)
def test_invalid_ids_are_refused(change, message):
    for build in (Vocabulary.from_ranks, lambda ids, specials: Vocabulary.from_pairs(ids, [], specials)):
        with pytest.raises(gm.TokenizerFormatError, match=message):
            build(BYTES | change, {})


def test_a_missing_byte_is_named():
    ranks = {token: id for token, id in BYTES.items() if id not in (7, 200)}
    with pytest.raises(gm.TokenizerFormatError, match="2 of the 256 bytes have no token; the first is 0x07"):
        Vocabulary.from_ranks(ranks, {})


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(b"a", b"x")], "b'ax' is not in the vocabulary"),
        ([(b"a", b"b"), (b"abx", b"c")], "merge 1 .* b'abx' is not"),
        ([(b"a", b"b"), (b"a", b"b")], "merge 1 joins b'a' and b'b', as an earlier merge"),
        ([(b"", b"a")], "b'' is not in"),
    ],
)
def test_invalid_pairs_are_refused(pairs, message):
    with pytest.raises(gm.TokenizerFormatError, match=message):
        Vocabulary.from_pairs(TOKENS, pairs, {})


@pytest.mark.parametrize(
    ("specials", "message"),
    [
        ({"<s>": 256}, "'<s>' has id 256, which another token"),
        ({"<s>": 400, "<t>": 400}, "'<s>' and '<t>' both have id 400"),
        ({"<s>": -1}, "id -1"),
        ({"<s>": None}, "id None"),
        ({"": 400}, "empty"),
        ({"\ud800": 400}, "lone surrogate"),
        ({7: 400}, "is a int"),
    ],
)
def test_invalid_specials_are_refused(specials, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary.from_ranks(TOKENS, specials)


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ([[97, 98, 300], [99, 100, 300]], "merge 1 creates id 300 as b'cd', but id 300 is b'ab'"),
        ([[97, 98, 99]], "merge 0 creates id 99 as b'ab'"),
        ([[300, 97, 301], [301, 97, 300]], "merge 0 joins ids 300 and 97, but id 300 is"),
        ([[97, 97, 300], *([300 + i, 300 + i, 301 + i] for i in range(60))], "more than 268,435,456 bytes"),
    ],
)
def test_merges_that_make_no_tokens(merges, message):
    vocabulary = Vocabulary(np.array(merges, np.uint32), np.arange(256, dtype=np.uint32), {}, {}, False)
    with pytest.raises(gm.TokenizerFormatError, match=message):
        _ = vocabulary.tokens


# Extending


def foreign(tok):
    """Return the same tokenizer with other ids: bytes backwards, gaps between the merges, specials in the middle."""
    new_id = {id: 255 - id if id < 256 else 1000 + 3 * id for id in range(256 + len(tok.merge_ids))}
    id_of = {token: new_id[id] for id, token in tok.parts.vocabulary.tokens.items()}
    specials = {special: 500 + i for i, special in enumerate(tok.special_tokens)}
    return tokenizer_of(Vocabulary.from_pairs(id_of, tok.merges, specials), tok.pattern), new_id


def test_a_tokenizer_with_other_ids_is_extended_by_the_same_merges_and_keeps_its_ids():
    text = "the mill by the river ground rye, and the miller's river ran by the mill " * 3
    small = gm.train_tokenizer([text], vocab_size=270, special_tokens=["<s>"], progress=None)
    large = gm.extend_tokenizer(small, [text], vocab_size=280, progress=None)
    other, _ = foreign(small)
    more = gm.extend_tokenizer(other, [text], vocab_size=other.vocab_size + 10, progress=None)
    assert more.merges == large.merges
    assert more.special_tokens == other.special_tokens
    assert more.vocab_size == other.vocab_size + 10
    assert more.vocab.items() > other.vocab.items()
    assert more.merged_ids[-10:].tolist() == list(range(other.vocab_size, other.vocab_size + 10))
    assert more.profile is not None
    assert more.decode(more.encode(text)) == text


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(b"a", b"b")], r"no merge creates 1 of its tokens; the first is b'abc' with id 301"),
        ([(b"a", b"b"), (b"ab", b"c"), (b"b", b"c"), (b"a", b"bc")], "2 merges create the token with id 301"),
        ([(b"ab", b"c"), (b"a", b"b")], "merge 0 joins ids 300 and 99, one of which a later merge creates"),
    ],
)
def test_a_vocabulary_that_training_cannot_create_is_not_extended(pairs, message):
    id_of = BYTES | {b"ab": 300, b"abc": 301} | ({b"bc": 302} if len(pairs) == 4 else {})
    tok = tokenizer_of(Vocabulary.from_pairs(id_of, pairs, {}))
    with pytest.raises(gm.OptionError, match=message):
        gm.extend_tokenizer(tok, ["abc"], vocab_size=400, progress=None)


def test_a_tokenizer_with_other_ids_is_not_truncated(tmp_path):
    tok, _ = foreign(gm.Tokenizer([(b"a", b"b")]))
    with pytest.raises(gm.OptionError, match="has the ids of the tool it comes from"):
        tok.truncated(256)


# Methods of a tokenizer with other ids


@pytest.mark.parametrize("pattern", ["gpt2", r"\p{L}+|\p{N}"])
def test_other_ids_give_the_same_tokens_everywhere(pattern, tmp_path):
    text = "the mill's river 123  ran\r\n by <s> the mill é 中 " * 3
    plain = gm.train_tokenizer([text], vocab_size=270, special_tokens=["<s>"], pattern=pattern, progress=None)
    tok, new_id = foreign(plain)
    rule = {"allowed_special": "all"}
    expected = [new_id.get(id, 500) for id in plain.encode(text, **rule)]
    assert tok.encode(text, **rule) == expected
    assert tok.encode_array(text, **rule).tolist() == expected
    assert tok.encode_batch([text, text], **rule).tolist() == [expected, expected]
    assert list(tok.encode_iterable(text, **rule)) == expected
    assert tok.count_tokens(text, **rule) == len(expected)
    (tmp_path / "t.txt").write_bytes(text.encode())
    assert tok.encode_file(tmp_path / "t.txt", **rule).tolist() == expected
    assert tok.decode(expected) == text
    assert tok.merges == plain.merges
    assert tok.merge_ids.tolist() == [[new_id[left], new_id[right]] for left, right in plain.merge_ids.tolist()]
    assert tok.merged_ids.tolist() == [new_id[id] for id in plain.merged_ids.tolist()]
    assert list(tok.vocab) == sorted(tok.vocab)
    assert set(tok.vocab.values()) == set(plain.vocab.values())
    assert tok.vocab_size == max(tok.vocab) + 1
    assert all(tok.token_bytes(id) == token for id, token in tok.vocab.items())
    assert all(tok.id_of(token) == id for id, token in tok.vocab.items())
    assert tok.fingerprint != plain.fingerprint
    for twin in (pickle.loads(pickle.dumps(tok)), copy.copy(tok), copy.deepcopy(tok)):
        assert twin == tok
        assert hash(twin) == hash(tok)
        assert twin.fingerprint == tok.fingerprint
        assert twin.encode(text, **rule) == expected
    with pytest.raises(gm.UnknownTokenError, match=r"ids\[1\]: no token has id 300. .* are 0 to \d+, with gaps"):
        tok.decode([255, 300])
    with pytest.raises(gm.UnknownTokenError, match=r"ids\[1\]: no token has id 300"):
        tok.decode(np.array([255, 300]))
    tok.save(tmp_path / "t.json")
    assert gm.Tokenizer.load(tmp_path / "t.json") == tok
