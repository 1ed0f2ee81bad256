"""compat.tiktoken: every call gives the result of tiktoken's object for the same vocabulary."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import gristmill as gm
from gristmill.compat.tiktoken import Encoding, get_encoding
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from texts import STORY, random_story, random_text

tiktoken = pytest.importorskip("tiktoken")

TEXTS = [STORY, "", " ", "héllo 😀", random_story(2, 300), random_text(1, 300, invalid=False).decode()]


@pytest.fixture(scope="module")
def both():
    tok = gm.train_tokenizer(
        [STORY, random_story(1, 2000)], vocab_size=600, special_tokens=["<|endoftext|>", "<|fim|>"], pattern="cl100k"
    )
    ours = Encoding(tok, name="ours")
    theirs = tiktoken.Encoding(
        "theirs",
        pat_str=NATIVE_PATTERNS["cl100k"],
        mergeable_ranks={token: id for id, token in tok.vocab.items() if id not in tok.special_tokens.values()},
        special_tokens=tok.special_tokens,
    )
    return ours, theirs


def test_what_it_is_made_of(both):
    ours, theirs = both
    assert ours.name == "ours"
    assert repr(ours) == "<Encoding 'ours'>"
    for name in ("n_vocab", "max_token_value", "eot_token", "special_tokens_set"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.token_byte_values() == theirs.token_byte_values()
    for id in (0, 300, 597, 598, 599, 1000):
        assert ours.is_special_token(id) == theirs.is_special_token(id)


def test_encoding(both):
    ours, theirs = both
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text)
        assert ours.encode_ordinary(text) == theirs.encode_ordinary(text)
        array = ours.encode_to_numpy(text)
        assert array.dtype == theirs.encode_to_numpy(text).dtype
        assert np.array_equal(array, theirs.encode_to_numpy(text))
    assert ours.encode_batch(TEXTS) == theirs.encode_batch(TEXTS)
    assert ours.encode_batch(TEXTS, num_threads=1) == theirs.encode_batch(TEXTS)
    assert ours.encode_ordinary_batch([*TEXTS, "<|fim|>"]) == theirs.encode_ordinary_batch([*TEXTS, "<|fim|>"])


@pytest.mark.parametrize(
    "rules",
    [
        {"allowed_special": "all"},
        {"allowed_special": {"<|fim|>"}, "disallowed_special": ()},
        {"disallowed_special": ()},
        {"allowed_special": set(), "disallowed_special": {"<|other|>"} - {"<|other|>"}},
    ],
)
def test_special_tokens(both, rules):
    ours, theirs = both
    text = "one<|fim|> two<|endoftext|>"
    assert ours.encode(text, **rules) == theirs.encode(text, **rules)
    assert ours.encode_batch([text, "a"], **rules) == theirs.encode_batch([text, "a"], **rules)
    assert ours.encode_to_numpy(text, **rules).tolist() == theirs.encode_to_numpy(text, **rules).tolist()


def test_errors_have_the_types_of_tiktoken(both):
    for enc in both:
        for call in (enc.encode, enc.encode_to_numpy, lambda text, enc=enc: enc.encode_batch([text])):
            with pytest.raises(ValueError, match="fim"):
                call("a <|fim|>")
        with pytest.raises(KeyError):
            enc.encode_single_token("certainly not a token")
        with pytest.raises(KeyError):
            enc.decode_single_token_bytes(10_000)
        with pytest.raises(KeyError):
            enc.decode([10_000])
    ours, _ = both
    with pytest.raises(NotImplementedError, match="to_tiktoken"):
        ours.encode_with_unstable("a")
    with pytest.raises(KeyError):
        Encoding(gm.Tokenizer([])).eot_token  # noqa: B018


def test_single_tokens(both):
    ours, theirs = both
    for id in [*range(0, 600, 7), 598, 599]:
        token = theirs.decode_single_token_bytes(id)
        assert ours.decode_single_token_bytes(id) == token
        assert ours.encode_single_token(token) == id
    assert ours.encode_single_token("<|fim|>") == theirs.encode_single_token("<|fim|>")


def test_decoding(both):
    ours, theirs = both
    batch = [theirs.encode(text) for text in TEXTS] + [[195], [598, 97]]
    for ids in batch:
        assert ours.decode(ids) == theirs.decode(ids)
        assert ours.decode(ids, errors="ignore") == theirs.decode(ids, errors="ignore")
        assert ours.decode_bytes(ids) == theirs.decode_bytes(ids)
        assert ours.decode_tokens_bytes(ids) == theirs.decode_tokens_bytes(ids)
    assert ours.decode_batch(batch) == theirs.decode_batch(batch)
    assert ours.decode_bytes_batch(batch) == theirs.decode_bytes_batch(batch)
    for text in TEXTS:
        assert ours.decode_with_offsets(theirs.encode(text)) == theirs.decode_with_offsets(theirs.encode(text))
    with pytest.raises(UnicodeDecodeError):
        ours.decode([195], errors="strict")


def test_it_can_be_pickled(both):
    ours, _ = both
    assert pickle.loads(pickle.dumps(ours)).encode(STORY) == ours.encode(STORY)


def test_get_encoding_takes_what_tiktoken_has(both, monkeypatch):
    ours, theirs = both
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: theirs)
    enc = get_encoding("cl100k_base")
    assert enc.name == "cl100k_base"
    assert enc.encode(STORY) == ours.encode(STORY)
    assert enc.special_tokens_set == ours.special_tokens_set


def test_only_a_tokenizer_is_wrapped():
    with pytest.raises(FileNotFoundError, match=r"tokenizer='cl100k_base'.*Tokenizer\.from_tiktoken\('cl100k_base'\)"):
        Encoding("cl100k_base")
    with pytest.raises(TypeError, match=r"tokenizer is of type int\. Pass a gristmill\.Tokenizer"):
        Encoding(3)


def test_a_token_both_allowed_and_disallowed_is_an_error_only_in_a_text_that_holds_it(both):
    special = sorted(both[0].special_tokens_set)[0]
    options = {"allowed_special": {special}, "disallowed_special": {special}}
    for enc in both:
        assert enc.encode(STORY, **options) == enc.encode_ordinary(STORY)
        with pytest.raises(ValueError, match="special"):
            enc.encode(STORY + special, **options)
