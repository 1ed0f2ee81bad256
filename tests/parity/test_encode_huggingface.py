"""Parity with Hugging Face `tokenizers`: the same ids, for published vocabularies and Hugging Face layouts."""

from __future__ import annotations

import random

import pytest

import gristmill as gm
import published
from gristmill.pretokenize.patterns import CLASSIC, resolve_pattern
from gristmill.reference import HUGGINGFACE_BYTE_ORDER
from gristmill.tokenizer.parts import TokenizerParts
from gristmill.tokenizer.vocabulary import Vocabulary
from texts import STORY, random_story, random_text

tokenizers = pytest.importorskip("tokenizers")

TEXTS = [
    *("", " ", "\n\n ", "a  \n  b", "don't'll'S", "x" * 700, " " * 90 + "x", "漢字" * 120, "ไทย" * 60, "😀" * 70),
    *(STORY, random_story(6, 600), *(random_text(seed, 300, invalid=False).decode() for seed in range(20, 26))),
]


def huggingface(vocabulary: Vocabulary, pattern: str, *, ignore_merges: bool = False):
    """The `tokenizers.Tokenizer` of a vocabulary, built from its components."""
    tokens = vocabulary.tokens
    merges = [
        (published.written(tokens[left]), published.written(tokens[right])) for left, right, _ in vocabulary.merges
    ]
    vocab = {published.written(token): id for id, token in tokens.items()}
    tok = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(CLASSIC[pattern]), "isolated")
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tok.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, byte_level])
    tok.decoder = tokenizers.decoders.ByteLevel()
    return tok


def ours_of(vocabulary: Vocabulary, pattern: str) -> gm.Tokenizer:
    return gm.Tokenizer.from_parts(TokenizerParts(vocabulary, resolve_pattern(pattern), "huggingface"))


@pytest.mark.parametrize("name", published.NAMES)
def test_ids_are_those_of_tokenizers(name):
    ours = published.tokenizer(name)
    theirs = huggingface(ours.parts.vocabulary, name)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode_batch(TEXTS, as_lists=True) == [found.ids for found in theirs.encode_batch(TEXTS)]


def random_vocabulary(source: random.Random, *, num_merges: int, whole_pieces: bool) -> Vocabulary:
    """Unordered ids, Hugging Face's byte ids, several merges for one token, tokens that no merge creates."""
    ids = list(range(600))
    source.shuffle(ids)
    id_of = {bytes([byte]): ids.pop() for byte in HUGGINGFACE_BYTE_ORDER}
    letters = [*b"abc \xc3\xa9"]
    tokens = [bytes([byte]) for byte in letters]
    pairs: dict[tuple[bytes, bytes], None] = {}
    for _ in range(num_merges):
        left, right = source.choice(tokens), source.choice(tokens)
        if len(left + right) < 20:
            pairs[left, right] = None
            if left + right not in id_of:
                id_of[left + right] = ids.pop()
                tokens.append(left + right)
    others = [bytes(source.choices(letters, k=source.randrange(2, 9))) for _ in range(6)]
    for token in others:
        if token not in id_of:
            id_of[token] = ids.pop()
    return Vocabulary.from_pairs(id_of, pairs, {}, whole_pieces=whole_pieces)


@pytest.mark.parametrize("whole_pieces", [False, True])
def test_any_vocabulary_has_the_ids_it_has_in_tokenizers(whole_pieces):
    source = random.Random(1)
    for _ in range(40):
        vocabulary = random_vocabulary(source, num_merges=source.randrange(40), whole_pieces=whole_pieces)
        ours = ours_of(vocabulary, "gpt2")
        theirs = huggingface(vocabulary, "gpt2", ignore_merges=whole_pieces)
        others = [token.decode("utf-8", "ignore") for token in vocabulary.other_tokens.values()]
        for _ in range(10):
            text = "".join(source.choices(["a", "b", "c", "é", " ", *others], k=source.randrange(60)))
            assert ours.encode(text) == theirs.encode(text).ids, (text, vocabulary.merges.tolist())
        for other in others:
            assert ours.encode(other) == theirs.encode(other).ids
