"""GGUF: an export that does not warn gives the same ids in llama.cpp."""

from __future__ import annotations

import warnings
from functools import cache

import pytest
import regex
from format_cases import whole_pieces
from llama_cpp_rules import EXPRESSIONS, SCRIPTS, LlamaCpp, varied_texts

import gristmill as gm
from gristmill.errors import FormatWarning
from gristmill.pretokenize.patterns import NATIVE_PATTERNS
from gristmill.reference import pretokenize
from gristmill.tokenizer.parts import TokenizerParts
from texts import STORY, random_story

TEXTS = list(varied_texts(7, 4000))


@cache
def trained_on_scripts(pattern: str, *ends: str) -> gm.Tokenizer:
    documents = [STORY, random_story(3, 3000), *SCRIPTS * 20]
    documents += [f"the miller{end}" for end in ends for _ in range(50)]
    return gm.train_tokenizer(documents, vocab_size=900, pattern=pattern, num_threads=1, progress=None)


def exported(parts: TokenizerParts, path) -> tuple[str | None, list[str]]:
    """Return the name of the pattern in the file, and the warnings."""
    gguf = pytest.importorskip("gguf")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gm.Tokenizer.from_parts(parts).export(path, format="gguf")
    assert all(issubclass(warning.category, FormatWarning) for warning in caught)
    field = gguf.GGUFReader(path).fields.get("tokenizer.ggml.pre")
    return None if field is None else field.contents(), [str(warning.message) for warning in caught]


def differing_texts(parts: TokenizerParts, pre: str) -> list[str]:
    ours, theirs = gm.Tokenizer.from_parts(parts), LlamaCpp(parts, pre)
    return [text for text in TEXTS if ours.encode(text) != theirs.encode(text)]


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_without_a_warning_llama_cpp_has_the_same_ids(pattern, tmp_path):
    parts = trained_on_scripts(pattern).parts
    pre, warned = exported(parts, tmp_path / "t.gguf")
    if pattern in ("gpt2", "llama3", "qwen2", "cl100k"):
        assert warned == []
        assert differing_texts(parts, pre) == []
    else:
        assert len(warned) == 1


@pytest.mark.parametrize(("pattern", "pre"), [("gpt2", "gpt-2"), ("llama3", "dbrx"), ("qwen2", "qwen2")])
def test_pieces_are_those_of_llama_cpps_expression(pattern, pre):
    tok = trained_on_scripts(pattern)
    theirs = LlamaCpp(tok.parts, pre)
    for text in TEXTS:
        if "'ſ" not in text:
            assert list(pretokenize(text.encode(), pattern)) == [p.encode() for p in theirs.pieces(text)]


def test_o200k_warns_and_has_the_ids_but_for_words_with_cases_outside_ascii(tmp_path):
    parts = trained_on_scripts("o200k").parts
    pre, warned = exported(parts, tmp_path / "t.gguf")
    assert pre == "granite-embed-multi-97m"
    assert "pre='gpt-4o'" in warned[0]
    differing = differing_texts(parts, pre)
    assert 0 < len(differing) < len(differing_texts(parts, "gpt-4o")) / 4
    assert all(regex.search(r"(?![a-zA-Z])[\p{Lu}\p{Lt}\p{Ll}]", text) for text in differing)


def test_o200k_with_a_token_that_its_own_bytes_do_not_lead_to_is_not_given_a_name_that_ignores_merges(tmp_path):
    tok = gm.Tokenizer([(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")], pattern="o200k")
    assert tok.encode("abc") != [258]
    pre, warned = exported(tok.parts, tmp_path / "t.gguf")
    assert pre == "gpt-4o"
    assert "combining marks" in warned[0]
    assert tok.encode("abc") == LlamaCpp(tok.parts, pre).encode("abc")


@pytest.mark.parametrize(
    ("pattern", "ends", "match"),
    [
        ("cl100k", ("\n   ", "\n  "), "cut after its last line break"),
        ("qwen2", ("iſt", " ſteht", " ſo"), "long s"),
        ("llama3", ("iſt", " ſteht", " ſo"), "long s"),
    ],
)
def test_a_vocabulary_with_tokens_across_a_place_that_is_cut_otherwise_warns(pattern, ends, match, tmp_path):
    parts = trained_on_scripts(pattern, *ends).parts
    pre, warned = exported(parts, tmp_path / "t.gguf")
    assert len(warned) == 1
    assert match in warned[0]
    tok = gm.Tokenizer.from_parts(parts)
    text = "the miller\n   " if pattern == "cl100k" else "the'ſteht"
    assert tok.encode(text) != LlamaCpp(parts, pre).encode(text)


def test_whole_pieces_have_the_same_ids(tmp_path):
    pre, warned = exported(whole_pieces(), tmp_path / "t.gguf")
    assert (pre, warned) == ("llama-bpe", [])
    assert differing_texts(whole_pieces(), pre) == []


def test_every_name_that_we_write_has_its_expression_here():
    from gristmill.tokenizer.formats import gguf

    names = {*gguf.PRE_NAMES.values(), *gguf.WHOLE_PIECES_PRE_NAMES.values(), gguf.O200K_WITHOUT_MARKS}
    assert names == set(EXPRESSIONS)
