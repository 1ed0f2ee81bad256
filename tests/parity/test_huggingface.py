"""Parity with Hugging Face `tokenizers`: merges with tie_break="huggingface", and ids."""

from __future__ import annotations

import json

import pytest

import gristmill as gm
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from gristmill.reference import HUGGINGFACE_BYTE_ORDER
from texts import STORY, random_story, random_text

tokenizers = pytest.importorskip("tokenizers")

DOCUMENTS = [STORY, *(random_story(seed, 400) for seed in range(5)), random_text(1, 800, invalid=False).decode()]
# ByteLevel has the expression of GPT-2's release; the others are passed to it.
PATTERNS = ["gpt2", "llama3", "nanochat", "qwen2", "o200k", "whitespace"]
CHARACTER_OF = {byte: chr(0x100 + i) for i, byte in enumerate(HUGGINGFACE_BYTE_ORDER[188:])} | {
    byte: chr(byte) for byte in HUGGINGFACE_BYTE_ORDER[:188]
}


def huggingface(pattern: str):
    tok = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern == "gpt2")
    if pattern == "gpt2":
        tok.pre_tokenizer = byte_level
    else:
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(NATIVE_PATTERNS[pattern]), "isolated")
        tok.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, byte_level])
    tok.decoder = tokenizers.decoders.ByteLevel()
    return tok


def train_huggingface(documents, vocab_size, pattern, **options):
    tok = huggingface(pattern)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        **options,
    )
    tok.train_from_iterator(documents, trainer)
    return tok


def as_huggingface(merges) -> list[tuple[str, str]]:
    return [tuple("".join(CHARACTER_OF[byte] for byte in part) for part in pair) for pair in merges]


def merges_of(tok) -> list[tuple[str, str]]:
    merges = json.loads(tok.to_str())["model"]["merges"]
    return [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in merges]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("vocab_size", [300, 800])
def test_merges_are_those_of_tokenizers(pattern, vocab_size):
    ours = gm.train_tokenizer(
        DOCUMENTS, vocab_size=vocab_size, pattern=pattern, tie_break="huggingface", special_tokens=()
    )
    theirs = train_huggingface(DOCUMENTS, vocab_size, pattern)
    assert as_huggingface(ours.merges) == merges_of(theirs)


def test_merges_are_those_of_tokenizers_to_the_last_pair():
    with pytest.warns(gm.EarlyStopWarning):
        ours = gm.train_tokenizer(DOCUMENTS[:2], vocab_size=50_000, tie_break="huggingface", special_tokens=())
    assert as_huggingface(ours.merges) == merges_of(train_huggingface(DOCUMENTS[:2], 50_000, "gpt2"))


def test_runs_of_one_letter_overlap_as_they_do_in_tokenizers():
    documents = ["a" * n + " " + "b" * (n // 2) + "a" * (n % 5) for n in range(60)]
    ours = gm.train_tokenizer(documents, vocab_size=290, tie_break="huggingface", special_tokens=())
    assert as_huggingface(ours.merges) == merges_of(train_huggingface(documents, 290, "gpt2"))


def test_special_tokens_shift_ids_but_no_merge():
    # Hugging Face's special tokens come first and are not boundaries in training, so it gets the documents between them
    text = "<s>".join(DOCUMENTS)
    ours = gm.train_tokenizer([text], vocab_size=502, special_tokens=["<s>", "</s>"], tie_break="huggingface")
    theirs = train_huggingface(DOCUMENTS, 502, "gpt2", special_tokens=["<s>", "</s>"])
    assert as_huggingface(ours.merges) == merges_of(theirs)


def test_a_bound_on_the_length_of_tokens_skips_the_same_pairs():
    # Hugging Face's limit is exclusive and counts the UTF-8 bytes of its byte alphabet, hence ASCII without spaces.
    documents = [word for word in " ".join(DOCUMENTS[1:6]).split() if word.isascii()]
    ours = gm.train_tokenizer(
        iter(documents), vocab_size=310, max_token_bytes=4, tie_break="huggingface", special_tokens=()
    )
    theirs = train_huggingface(documents, 310, "gpt2", max_token_length=5)
    assert as_huggingface(ours.merges) == merges_of(theirs)
    assert (
        ours.merges
        != gm.train_tokenizer(iter(documents), vocab_size=310, tie_break="huggingface", special_tokens=()).merges
    )


@pytest.mark.parametrize("pattern", PATTERNS)
def test_tokens_of_new_text_are_those_of_tokenizers(pattern):
    ours = gm.train_tokenizer(DOCUMENTS, vocab_size=800, pattern=pattern, tie_break="huggingface", special_tokens=())
    theirs = train_huggingface(DOCUMENTS, 800, pattern)
    for text in [STORY, random_story(99, 500), random_text(7, 1500, invalid=False).decode()]:
        tokens = ["".join(CHARACTER_OF[byte] for byte in ours.token_bytes(id)) for id in ours.encode(text)]
        assert tokens == theirs.encode(text).tokens
