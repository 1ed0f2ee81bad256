"""`gm.pretokenize(text)`: the pieces of one text, compared with the `regex` module, and every way to call it."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pydoc
import re
import subprocess
import sys

import pytest
import regex

import gristmill as gm
from gristmill.pretokenize import NATIVE_PATTERNS, pieces
from texts import STORY, random_story, random_text

CUSTOM = r"\p{L}+|\d"  # leaves white space and punctuation between its matches
PATTERNS = {**NATIVE_PATTERNS, CUSTOM: rf"{CUSTOM}|[^\p{{L}}\d]+"}

pytestmark = pytest.mark.filterwarnings("ignore::gristmill.SlowPatternWarning")


def pieces_between(text: str, expression: str, specials: list[str]) -> list[str]:
    """The plain version: cut at special tokens, then by the expression."""
    any_special = "|".join(map(re.escape, sorted(specials, key=len, reverse=True))) or "(?!)"
    found = []
    for i, part in enumerate(re.split(f"({any_special})", text)):
        found += [part] if i % 2 else regex.findall(expression, part)
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("specials", [[], ["<|end|>", "<|end|>\n", " "], ["日本", "é"]])
def test_the_pieces_are_those_of_regex_as_str_and_as_bytes(pattern, specials):
    texts = [STORY, random_story(1, 300), *(random_text(seed, 200, invalid=False).decode() for seed in range(20))]
    for text in ["", *texts, "<|end|>".join(texts), "<|end|>\n" * 3, "日本語 é日本"]:
        expected = pieces_between(text, PATTERNS[pattern], specials)
        assert gm.pretokenize(text, pattern=pattern, special_tokens=specials) == expected
        as_bytes = [piece.encode() for piece in expected]
        assert gm.pretokenize(text.encode(), pattern=pattern, special_tokens=specials) == as_bytes


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_invalid_byte_is_one_character_and_none_is_lost(pattern):
    for seed in range(50):
        data = random_text(seed, 200)
        text = data.decode("utf-8", "surrogateescape")
        expected = [piece.encode("utf-8", "surrogateescape") for piece in regex.findall(PATTERNS[pattern], text)]
        assert gm.pretokenize(data, pattern=pattern) == expected


@pytest.mark.parametrize("pattern", NATIVE_PATTERNS)
def test_pieces_of_every_length_come_back_whole(pattern):
    # short pieces are cached by their bytes, including zeros
    words = [letter * length for length in range(1, 40) for letter in "ab\0é"]
    text = " ".join(words + words)
    assert "".join(gm.pretokenize(text, pattern=pattern)) == text
    assert gm.pretokenize(text, pattern=pattern) == regex.findall(NATIVE_PATTERNS[pattern], text)


def test_a_text_of_more_pieces_than_are_made_between_two_looks_at_signals():
    text = "".join(f" {word}" for word in itertools.islice(itertools.cycle(["a", "bc", "日本"]), 200_000))
    assert gm.pretokenize(text) == regex.findall(NATIVE_PATTERNS["gpt2"], text)


def test_the_default_pattern_is_that_of_training():
    assert gm.pretokenize("it's 1234") == gm.pretokenize("it's 1234", pattern="gpt2")


@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
def test_an_object_that_is_not_a_text_is_an_error_that_says_what_to_pass(pattern):
    with pytest.raises(TypeError, match=r"text is a list\. Pass str or bytes"):
        gm.pretokenize(["a"], pattern=pattern)
    with pytest.raises(gm.TextError, match="'\\\\ud800' at character 1 is a lone surrogate"):
        gm.pretokenize("a\ud800", pattern=pattern)
    with pytest.raises(gm.SpecialTokenError, match="is one str"):
        gm.pretokenize("a", pattern=pattern, special_tokens="<|end|>")
    with pytest.raises(gm.PatternError, match="'gpt5' is not known"):
        gm.pretokenize("a", pattern="gpt5")


def test_an_expression_that_takes_too_long_is_an_error(monkeypatch):
    monkeypatch.setattr(pieces, "TIMEOUT_SECONDS", 0.05)
    with pytest.raises(gm.PieceTimeoutError, match="on the text"):
        gm.pretokenize("a" * 40, pattern=r"(?:(?:a|a)*b)|c")


def test_the_package_of_the_stage_can_be_called_and_imported_in_every_way():
    import gristmill.pretokenize as package
    import gristmill.pretokenize.patterns as patterns_module
    from gristmill import pretokenize
    from gristmill.pretokenize import patterns

    assert gm.pretokenize is package is pretokenize is importlib.import_module("gristmill.pretokenize")
    assert patterns is patterns_module is gm.pretokenize.patterns
    assert pretokenize("a b") == ["a", " b"]
    assert list(inspect.signature(gm.pretokenize).parameters) == ["text", "pattern", "special_tokens"]
    assert "Return the pieces" in type(gm.pretokenize).__call__.__doc__


@pytest.mark.parametrize(
    "code",
    [
        "import gristmill.pretokenize as p; p('a b')",
        "from gristmill.pretokenize import NATIVE_PATTERNS; NATIVE_PATTERNS['gpt2']",
        "import gristmill.pretokenize.patterns as p; p.resolve_pattern('gpt2')",
        "from gristmill.pretokenize.cutting import pretokenize as f; f('a b')",
        "from gristmill import *; pretokenize('a b')",
    ],
)
def test_each_import_works_as_the_first_of_a_process(code):
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_of_the_package_begins_with_the_function():
    text = pydoc.plain(pydoc.render_doc(gm.pretokenize))
    signature = text.index("pretokenize(text, *, pattern='gpt2', special_tokens=())")
    assert signature < text.index("Return the pieces into which") < text.index("PACKAGE CONTENTS")
    defaults = {name: p.default for name, p in inspect.signature(gm.pretokenize).parameters.items()}
    assert defaults == {"text": inspect.Parameter.empty, "pattern": "gpt2", "special_tokens": ()}
