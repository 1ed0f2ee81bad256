r"""Patterns: the regular expressions that cut a text into pieces.

Seven patterns have a name and a native matcher. `NATIVE_PATTERNS` has their definitions as published: gpt2, cl100k and
o200k by tiktoken 0.14, llama3 and qwen2 in their model cards, nanochat in its tokenizer. Worker processes run any other
regular expression of the `regex` module.

For every pattern:

* A piece is one match. Text between two matches is a piece too, so no byte is lost. Empty matches are ignored.
* Text is UTF-8. Every byte that is not part of a valid sequence is one character that is neither letter, number nor
  white space, as in `data.decode("utf-8", "surrogateescape")`.

To add a native pattern, add a line to `NATIVE_PATTERNS` and a matcher in `cpp/src/pretokenize`; ARCHITECTURE.md lists
the places.

>>> resolve_pattern("r50k").name
'gpt2'
>>> resolve_pattern(r"\w+|\W+").name is None
True
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gristmill.arguments import nearest
from gristmill.errors import PatternError, SlowPatternWarning, warn_user
from gristmill.pretokenize.pattern_size import MAX_COMPILED_SIZE, compiled_size
from gristmill.pretokenize.stages import stages

__all__ = ["NATIVE_PATTERNS", "Pattern", "pattern_names", "resolve_pattern"]

DEFAULT_PATTERN = "gpt2"

NATIVE_PATTERNS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s"
    ),
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    ),
    "nanochat": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
        r"|\s+(?!\S)|\s+"
    ),
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    ),
    "whitespace": r" ?\S+|\s+(?!\S)|\s+",
}

# tiktoken's names of the same expressions.
ALIASES = {
    "r50k": "gpt2",
    "p50k": "gpt2",
    "r50k_base": "gpt2",
    "p50k_base": "gpt2",
    "cl100k_base": "cl100k",
    "o200k_base": "o200k",
}

# The whole text is one piece, for a tokenizer without a pattern.
WHOLE_TEXT = r"[\s\S]+"

# Expressions that cut the same pieces, for tools whose regex engines interpret possessive quantifiers or `$`
# differently: to Oniguruma, which Hugging Face uses, `{1,3}+` is a repetition of repetitions.
CLASSIC = NATIVE_PATTERNS | {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s+(?![\s\S])|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "nanochat": NATIVE_PATTERNS["llama3"].replace("{1,3}", "{1,2}"),
}

# Other published spellings that match the same pieces.
SPELLINGS = {
    # the release of GPT-2; Hugging Face's ByteLevel
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    # Stanford CS336, minbpe, earlier tiktoken
    CLASSIC["gpt2"]: "gpt2",
    CLASSIC["cl100k"]: "cl100k",
    # Hugging Face's spelling of GPT-4's expression, with numbers of two digits
    CLASSIC["nanochat"]: "nanochat",
    # cl100k in earlier tiktoken and minbpe: unlike the current one, it cuts white space at the end of a text after the
    # last line break, as llama3 does. (Hugging Face's expression for cl100k is exactly that of llama3.)
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
        r"|\s+(?!\S)|\s+"
    ): "llama3",
    # minbpe's reader strips white space from both ends of a pattern, so minbpe files have it in parentheses
    rf"(?:{NATIVE_PATTERNS['whitespace']})": "whitespace",
}

_BY_REGEX = {regex: name for name, regex in NATIVE_PATTERNS.items()} | SPELLINGS
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern: its regular expression, and the name of its native matcher if it has one."""

    regex: str
    name: str | None = None

    def __str__(self) -> str:
        """Return the argument of `resolve_pattern` that gives this pattern: the name, otherwise the expression."""
        return self.name or self.regex

    def to_json(self) -> dict[str, str | None]:
        """Return the pattern as stored in files: name and expression, so that the meaning of a name cannot change."""
        return {"name": self.name, "regex": self.regex}

    @staticmethod
    def from_json(stored: Any) -> Pattern:
        """Return the pattern stored in a file. Raises PatternError if its name means another expression here."""
        if not isinstance(stored, dict) or sorted(stored) != ["name", "regex"]:
            raise PatternError(f"the pattern is {stored!r:.80} instead of {{'name': …, 'regex': …}}")
        pattern = resolve_pattern(stored["regex"] if stored["name"] is None else stored["name"])
        if pattern.to_json() != stored:
            raise PatternError(
                f"the file defines pattern {stored['name']!r} as {stored['regex']!r}, but this Gristmill defines it as "
                f"{pattern.regex!r}"
            )
        return pattern


def pattern_names() -> list[str]:
    """Return the names that `pattern=` accepts, including aliases.

    Examples:
        >>> pattern_names()[:4]
        ['gpt2', 'cl100k', 'o200k', 'llama3']
    """
    return [*NATIVE_PATTERNS, *ALIASES]


def resolve_pattern(pattern: str) -> Pattern:
    r"""Return the `Pattern` of a name, an alias or a regular expression.

    The published expression of a named pattern gets the native matcher of that name.

    >>> resolve_pattern(r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+").name
    'gpt2'
    """
    if not isinstance(pattern, str):
        raise PatternError(f"pattern={pattern!r} is of type {type(pattern).__name__}. Pass a str: {_choices()}.")
    name = ALIASES.get(pattern, pattern)
    name = _BY_REGEX.get(name, name)
    if name in NATIVE_PATTERNS:
        return Pattern(NATIVE_PATTERNS[name], name)
    if sum(map(compiled_size, stages(pattern))) > MAX_COMPILED_SIZE:
        raise PatternError(
            f"pattern={pattern!r:.300} is too large: its {len(pattern):,} characters and its nested repeats may "
            f"compile to more than {MAX_COMPILED_SIZE:,} elements. Pass a pattern with fewer alternatives, or with "
            f"smaller repeats."
        )
    if _NAME.fullmatch(pattern):
        raise PatternError(
            f"pattern={pattern!r} is not valid.{nearest(pattern, pattern_names())} Pass {_choices()}. "
            f"(To use these letters as a regular expression, pass {'(?:' + pattern + ')'!r}.)"
        )
    for expression in stages(pattern):
        compile_regex(expression)
    return Pattern(pattern)


@lru_cache(maxsize=64)
def compile_regex(pattern: str) -> Any:
    """Return the compiled expression. Raises PatternError if it does not compile or searches backwards."""
    import regex  # not at the top: native patterns never need it

    if not pattern:
        raise PatternError(f"pattern='' matches nothing. Pass {_choices()}.")
    try:
        pattern.encode()  # a lone surrogate cannot be saved
        compiled = regex.compile(pattern)
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        message = f"pattern={pattern!r:.300} is not a valid regular expression: {error}. Pass {_choices()}."
        raise PatternError(message) from error
    if compiled.flags & regex.REVERSE:
        raise PatternError(f"pattern={pattern!r:.300} searches backwards, but pieces are cut forwards. Remove (?r).")
    return compiled


def warn_of_slow_pattern(pattern: Pattern) -> None:
    """Warn once per process and pattern that `pattern` has no native matcher."""
    if pattern.name is None and pattern.regex not in _warned:
        _warned.add(pattern.regex)
        warn_user(
            f"pattern={pattern.regex!r} has no native matcher: the `regex` module runs it, about 100 times slower. "
            f"Native patterns: {', '.join(NATIVE_PATTERNS)}.",
            SlowPatternWarning,
        )


def _choices() -> str:
    return f"a name ({', '.join(pattern_names())}) or a regular expression of the `regex` module"
