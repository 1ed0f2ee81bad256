"""Parity with tiktoken: the same ids for the same vocabulary, and the same rules for special tokens."""

from __future__ import annotations

import pytest

import gristmill as gm
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from texts import STORY, random_story, random_text

tiktoken = pytest.importorskip("tiktoken")

SPECIALS = ["<|endoftext|>", "<|end|>"]
TEXTS = [
    STORY,
    random_story(5, 1000),
    *(random_text(seed, 400, invalid=False).decode() for seed in range(10)),
    "",
    " ",
    "\n\n ",
    "x" * 3000,
    "don't'll'",
]


@pytest.fixture(scope="module", params=[*NATIVE_PATTERNS, r"\p{L}+|[^\p{L}]"])
def both(request):
    ours = gm.train_tokenizer(
        [STORY, random_story(1, 2000)], vocab_size=550, pattern=request.param, special_tokens=SPECIALS, num_threads=1
    )
    theirs = tiktoken.Encoding(
        "gristmill",
        pat_str=NATIVE_PATTERNS.get(request.param, request.param),
        mergeable_ranks={token: id for id, token in ours.vocab.items() if id not in ours.special_tokens.values()},
        special_tokens=ours.special_tokens,
    )
    return ours, theirs


def test_ids_are_those_of_tiktoken(both):
    ours, theirs = both
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text)


def test_texts_of_ids_are_those_of_tiktoken(both):
    ours, theirs = both
    ids = theirs.encode(TEXTS[4])
    for end in range(len(ids)):
        assert ours.decode(ids[:end]) == theirs.decode(ids[:end])
        assert ours.decode_bytes(ids[:end]) == theirs.decode_bytes(ids[:end])


def test_special_tokens_follow_the_rules_of_tiktoken_where_disallowed_is_all(both):
    ours, theirs = both
    text = "one <|endoftext|>two <|end|> <|endof"
    for rules in (
        {},
        {"allowed_special": "all"},
        {"allowed_special": {"<|end|>"}},
        {"allowed_special": {"<|end|>"}, "disallowed_special": ()},
        {"disallowed_special": ()},
        {"disallowed_special": {"<|end|>"}},
    ):
        try:
            expected = theirs.encode(text, **rules)
        except ValueError:
            with pytest.raises(ValueError, match="is not allowed"):
                ours.encode(text, **({"disallowed_special": "all"} | rules))
        else:
            assert ours.encode(text, **({"disallowed_special": "all"} | rules)) == expected


def test_single_tokens_are_those_of_tiktoken(both):
    ours, theirs = both
    for id in range(ours.vocab_size):
        assert ours.token_bytes(id) == theirs.decode_single_token_bytes(id)
    with pytest.raises(KeyError):
        theirs.decode([ours.vocab_size])
    with pytest.raises(KeyError):
        ours.decode([ours.vocab_size])
