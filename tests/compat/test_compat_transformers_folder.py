"""Exported folders in the installed transformers: `AutoTokenizer` gives the same ids, whatever its class.

Run it with several versions, each in a separate environment with transformers, tokenizers, pytest, regex and
hypothesis: `PYTHONPATH=src python -m pytest tests/compat/test_compat_transformers_folder.py`.
"""

from __future__ import annotations

import random
import warnings
from functools import cache

import pytest

import gristmill as gm
from gristmill.errors import FormatWarning
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from gristmill.tokenizer.vocabulary import Vocabulary
from texts import CHARACTERS, CONTRACTIONS, RUNS, STORY, random_story

transformers = pytest.importorskip("transformers")

END, USER, PLAIN = "<|endoftext|>", "<|user|>", "[tool call]"
SPECIALS = [END, USER, "<s>", PLAIN]


def texts_with_specials(number: int) -> list[str]:
    source = random.Random(11)
    words = random_story(2, 3000).split(" ")
    parts = [*CHARACTERS, *CONTRACTIONS, *RUNS, *SPECIALS * 4]
    texts = []
    for i in range(number):
        pool = parts if i % 2 else [*words, *SPECIALS * 20]
        texts.append(("" if i % 2 else " ").join(source.choices(pool, k=source.randrange(1, 40))))
    return texts


@cache
def trained(pattern: str) -> gm.Tokenizer:
    return gm.train_tokenizer(
        [STORY, random_story(1, 2000)],
        vocab_size=600,
        pattern=pattern,
        special_tokens=SPECIALS,
        num_threads=1,
        progress=None,
    )


def with_specials_first() -> gm.Tokenizer:
    """Ids as Hugging Face's trainer assigns them, and a gap."""
    tok = trained("gpt2")
    id_of = {token: id + 10 for id, token in tok.parts.vocabulary.tokens.items()}
    vocabulary = Vocabulary.from_pairs(id_of, tok.merges, {special: 2 * i for i, special in enumerate(SPECIALS)})
    return gm.Tokenizer.from_parts(gm.tokenizer.TokenizerParts(vocabulary, tok.parts.pattern, tok.tie_break))


def assert_same(tok: gm.Tokenizer, folder, texts: list[str]) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = [tok.encode(text, allowed_special="all") for text in texts]
    assert theirs(texts).input_ids == ids
    assert theirs.batch_decode(ids) == texts
    assert theirs.convert_tokens_to_ids(SPECIALS) == [tok.special_tokens[special] for special in SPECIALS]
    assert sorted(theirs.all_special_ids) == sorted(tok.special_tokens.values())
    assert theirs.vocab_size == len(theirs) == len(tok.vocab)
    assert theirs.eos_token == END


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_an_exported_folder_gives_the_same_ids_for_5000_texts(pattern, tmp_path):
    tok = trained(pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FormatWarning)
        tok.export(tmp_path / "tok", format="huggingface")
    assert_same(tok, tmp_path / "tok", texts_with_specials(5000))


@pytest.mark.parametrize("name", ["tiny-llama", "gpt2", "qwen2-small", "bert", "mistral.v1", "t5", "o-200k"])
@pytest.mark.parametrize("format", ["huggingface", "gpt2"])
def test_the_name_of_the_folder_does_not_matter(name, format, tmp_path):
    tok = trained("gpt2")
    tok.export(tmp_path / name, format=format)
    assert_same(tok, tmp_path / name, texts_with_specials(300))


@pytest.mark.parametrize("format", ["huggingface", "gpt2"])
def test_ids_of_another_layout_are_kept(format, tmp_path):
    tok = with_specials_first()
    tok.export(tmp_path / "tok", format=format)
    assert_same(tok, tmp_path / "tok", texts_with_specials(1000))


def test_gpt2s_own_files_keep_all_special_tokens_for_5000_texts(tmp_path):
    tok = trained("gpt2")
    with warnings.catch_warnings():
        warnings.simplefilter("error", FormatWarning)
        tok.export(tmp_path / "tok", format="gpt2")
    texts = texts_with_specials(5000)
    assert_same(tok, tmp_path / "tok", texts)
    theirs = transformers.GPT2TokenizerFast.from_pretrained(tmp_path / "tok", local_files_only=True)
    assert theirs(texts[:500]).input_ids == [tok.encode(text, allowed_special="all") for text in texts[:500]]
    assert gm.Tokenizer.load(tmp_path / "tok") == tok


def test_roles_that_are_named_are_there_and_others_are_not_guessed(tmp_path):
    tok = trained("gpt2")
    tok.export(tmp_path / "a", format="huggingface", pad_token=USER, model_max_length=128)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    assert (theirs.bos_token, theirs.eos_token, theirs.pad_token) == ("<s>", END, USER)
    assert theirs.model_max_length == 128
    tok.export(tmp_path / "b", format="huggingface")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "b")
    assert theirs.pad_token is None
    assert theirs.model_max_length > 10**20


def test_a_tokenizer_without_special_tokens_is_read(tmp_path):
    tok = gm.Tokenizer(trained("llama3").merges, pattern="llama3")
    tok.export(tmp_path / "llama", format="huggingface")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "llama")
    texts = texts_with_specials(300)
    assert theirs(texts).input_ids == [tok.encode(text) for text in texts]
    assert (theirs.eos_token, len(theirs)) == (None, tok.vocab_size)


def test_what_it_saves_again_is_the_same_tokenizer(tmp_path):
    tok = trained("o200k")
    tok.export(tmp_path / "a", format="huggingface")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b")
    again = gm.Tokenizer.load(tmp_path / "b")
    assert (again.vocab, again.special_tokens, again.pattern) == (tok.vocab, tok.special_tokens, tok.pattern)
