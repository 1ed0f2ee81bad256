"""The bound of the size of a compiled expression: never too small, and small for the patterns of people."""

from __future__ import annotations

import pytest

import gristmill as gm
from gristmill.pretokenize.pattern_size import MAX_COMPILED_SIZE, compiled_size
from gristmill.pretokenize.patterns import NATIVE_PATTERNS


@pytest.mark.parametrize("name", NATIVE_PATTERNS)
def test_published_patterns_are_a_hundred_times_smaller_than_the_limit(name):
    assert compiled_size(NATIVE_PATTERNS[name]) < MAX_COMPILED_SIZE / 100


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("a", 1),
        (r"\w{3}", 6),
        ("a{,5}b{3,}c{2,4}d{0}e{6,6}", 1 + 4 + 3 + 1 + 6),
        ("(?:ab){1000}", 3000),
        ("(?:a{1000}){1000}", 1_001_000),
        ("a++b+?c*+d??", 2 + 2 + 1 + 1),
        ("[a+{9}(]{10}", 80),
        ("[]+{9}(]{10}", 80),
        ("[^]+{9}(]{10}", 90),
        (r"\[{10}", 20),
        (r"(?#a{1000})b", 1),
        ("(?x) a{10} # b{1000}(\n c", 12),
    ],
)
def test_the_size_of_a_pattern(pattern, size):
    assert compiled_size(pattern) == size


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:(?:(?:a{1000}){1000}){1000}){1000}",
        r"\w{100000000}",
        "a{" + "9" * 5000 + "}",
        "(?:" * 20 + "a" + ")+" * 20,
        "(?:a|b)" * 100_000,
        "|".join(f"a{i}" for i in range(20_000)),
        "a" * 20_000_000,
    ],
    ids=lambda pattern: pattern[:20],
)
def test_patterns_that_would_take_all_memory_or_hours_are_refused_before_they_are_compiled(pattern):
    with pytest.raises(gm.PatternError, match="is too large") as caught:
        gm.Tokenizer([], pattern=pattern)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "pattern",
    [
        "(?V1)([[a])]x{1000}[[b](]){1000}",  # a set with a parenthesis, in a set
        "([(?V1)[])x{1000}[(](?:y{1000}){1000}",  # the flag is text, so sets have no sets
        "(?x:( # ()\n(?:y{1000}){1000})",  # a comment in a part of the pattern
        "(?x)( # )\n (?:y{1000}){1000})",
        "(?:y{1000}){1000}(",
        "(?:y{1000}){1000})",
        "(?:y{1000}){1000}[",
    ],
)
def test_nothing_that_hides_a_parenthesis_makes_the_size_too_small(pattern):
    assert compiled_size(pattern) > 1_000_000
