"""Shared by the tests of formats: texts, and vocabularies of every layout."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

import gristmill as gm
from gristmill.pretokenize.patterns import NATIVE_PATTERNS, resolve_pattern
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary
from texts import STORY, random_story, random_text

SPECIALS = ["<|endoftext|>", "<|end|>"]
TEXTS = [
    STORY,
    random_story(5, 800),
    *(random_text(seed, 300, invalid=False).decode() for seed in range(20)),
    *("", " ", "\n\n ", "a  \n  ", "a  \n  b", "x" * 2000, "1234567 12 ½½½½½", "don't'll'S", "abc cab bca abcd"),
]


@cache
def trained(pattern: str = "gpt2") -> gm.Tokenizer:
    """Return a tokenizer in Gristmill's layout."""
    return gm.train_tokenizer(
        [STORY, random_story(1, 1000)],
        vocab_size=450,
        pattern=pattern,
        special_tokens=SPECIALS,
        num_threads=1,
        progress=None,
    )


def renumbered() -> TokenizerParts:
    """Return the merges of `trained()` with ids as in Hugging Face: specials first, bytes unordered."""
    from gristmill.reference import HUGGINGFACE_BYTE_ORDER

    tok = trained()
    id_of = {bytes([byte]): 2 + i for i, byte in enumerate(HUGGINGFACE_BYTE_ORDER)}
    for left, right in tok.merges:
        id_of[left + right] = 2 + len(id_of)
    vocabulary = Vocabulary.from_pairs(id_of, tok.merges, {special: i for i, special in enumerate(SPECIALS)})
    return TokenizerParts(vocabulary, resolve_pattern("gpt2"), "greatest-bytes")


def with_gaps() -> TokenizerParts:
    """Return ids as OpenAI assigns them: by rank, special tokens far after the others, and ids without a token."""
    tok = trained("o200k")
    ranks = {token: id for id, token in tok.vocab.items() if id < 256 + len(tok.merges)}
    vocabulary = Vocabulary.from_ranks(ranks, {"<|endofprompt|>": 1018, "<|endoftext|>": 999})
    return TokenizerParts(vocabulary, resolve_pattern("o200k"), "greatest-bytes")


def whole_pieces() -> TokenizerParts:
    """Return a vocabulary like Llama 3's: several merges for one token, a token without a merge, and whole pieces."""
    tokens = [b"ab", b"bc", b"abc", b"cab", b"xyz", b" the"]
    id_of = {bytes([byte]): byte for byte in range(256)} | {token: 256 + i for i, token in enumerate(tokens)}
    pairs = [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc"), (b"c", b"ab")]
    vocabulary = Vocabulary.from_pairs(id_of, pairs, {"<|begin_of_text|>": 300}, whole_pieces=True)
    return TokenizerParts(vocabulary, resolve_pattern("llama3"), "greatest-bytes")


LAYOUTS = {
    **{name: (lambda name=name: trained(name).parts) for name in NATIVE_PATTERNS},
    "renumbered": renumbered,
    "with_gaps": with_gaps,
    "whole_pieces": whole_pieces,
}


def same_ids(parts: TokenizerParts, other: TokenizerParts) -> bool:
    """Whether both are the same tokenizer, except for tie_break, which only Gristmill's file stores."""
    ours, theirs = gm.Tokenizer.from_parts(parts), gm.Tokenizer.from_parts(other)
    return (
        parts.pattern == other.pattern
        and ours.vocab == theirs.vocab
        and ours.special_tokens == theirs.special_tokens
        and all(
            ours.encode(text, allowed_special="all") == theirs.encode(text, allowed_special="all") for text in TEXTS
        )
    )


def gpt2_folder() -> Path:
    """Return the folder with GPT-2's files from an environment variable, or skip the test."""
    folder = os.environ.get("GRISTMILL_DATA")
    if not folder:
        pytest.skip("GRISTMILL_DATA names no folder with gpt2_vocab.json and gpt2_merges.txt")
    return Path(folder)


def published_path(name: str) -> Path:
    """Return the gzipped ranks of OpenAI's encodings from the package bpe_openai."""
    bpe_openai = pytest.importorskip("bpe_openai")
    return Path(bpe_openai.__file__).parent / "data" / f"{name}.tiktoken.gz"
