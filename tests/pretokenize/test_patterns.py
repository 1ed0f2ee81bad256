"""Patterns: their names and definitions, and the native matchers compared with the `regex` module."""

from __future__ import annotations

import warnings

import pytest
import regex

import gristmill as gm
from gristmill import _core
from gristmill.pretokenize import patterns
from gristmill.pretokenize.patterns import ALIASES, NATIVE_PATTERNS, SPELLINGS, Pattern, resolve_pattern
from texts import random_text


def test_the_names_in_python_and_in_the_core_are_the_same():
    assert set(NATIVE_PATTERNS) == set(_core.PATTERNS)


def test_the_openai_patterns_are_those_of_tiktoken(monkeypatch):
    openai_public = pytest.importorskip("tiktoken_ext.openai_public")
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})  # the real one downloads the ranks
    assert NATIVE_PATTERNS["gpt2"] == openai_public.r50k_pat_str
    assert NATIVE_PATTERNS["cl100k"] == openai_public.cl100k_base()["pat_str"]
    assert NATIVE_PATTERNS["o200k"] == openai_public.o200k_base()["pat_str"]


def test_qwen2_is_llama3_with_single_digits():
    assert NATIVE_PATTERNS["qwen2"] == NATIVE_PATTERNS["llama3"].replace(r"\p{N}{1,3}", r"\p{N}")


def test_nanochat_is_llama3_with_numbers_of_two_digits():
    assert patterns.CLASSIC["nanochat"] == NATIVE_PATTERNS["llama3"].replace(r"\p{N}{1,3}", r"\p{N}{1,2}")
    # the exact expression in nanochat's tokenizer
    written = (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    )
    assert resolve_pattern(written).name == "nanochat"
    assert gm.pretokenize("a 12345", pattern=written) == ["a", " ", "12", "34", "5"]


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_an_alias_is_the_native_pattern(alias, name):
    assert resolve_pattern(alias) == resolve_pattern(name) == Pattern(NATIVE_PATTERNS[name], name)


@pytest.mark.parametrize(("spelling", "name"), [*SPELLINGS.items(), *((r, n) for n, r in NATIVE_PATTERNS.items())])
def test_a_known_expression_written_out_gets_the_native_matcher_and_matches_the_same(spelling, name):
    assert resolve_pattern(spelling).name == name
    for seed in range(20):
        text = random_text(seed, 300).decode("utf-8", "surrogateescape")
        assert regex.findall(spelling, text) == regex.findall(NATIVE_PATTERNS[name], text)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(
        gm.PatternError, match=r"'gpt5'.*not known.*gpt2, cl100k, o200k, llama3, nanochat, qwen2, whitespace"
    ):
        resolve_pattern("gpt5")


def test_an_invalid_regular_expression_is_an_error_that_says_where():
    with pytest.raises(gm.PatternError, match=r"'\(ab'.*missing \) at position 3"):
        resolve_pattern("(ab")


@pytest.mark.parametrize("pattern", ["", None, 7, b"gpt2", r"(?r)a", "a\ud800+"])
def test_an_invalid_pattern_is_a_pattern_error(pattern):
    with pytest.raises(gm.PatternError):
        resolve_pattern(pattern)


def test_a_pattern_error_is_a_value_error_before_any_corpus_is_read():
    with pytest.raises(ValueError, match="not a valid regular expression"):
        gm.train_tokenizer("/no/such/file", vocab_size=300, pattern="[", special_tokens=())


def test_one_warning_says_that_a_pattern_has_no_native_matcher(monkeypatch):
    monkeypatch.setattr(patterns, "_warned", set())
    for expected in (1, 0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gm.count_words(["ab cd"], pattern=r"\w+|\s", num_threads=1, special_tokens=())
        slow = [warning for warning in caught if warning.category is gm.SlowPatternWarning]
        assert len(slow) == expected
        assert all(warning.filename == __file__ for warning in slow)
