r"""Patterns in stages: several expressions, each of which cuts the pieces of the previous one.

Some Hugging Face models cut text this way: StarCoder first isolates digits, then cuts the rest with GPT-2's expression.
An expression sees one piece without its surroundings, so `(?!\S)` matches at the end of each piece. No single
expression can do that. A pattern in stages is still one string, in which a comment separates the expressions.

>>> in_stages([r"\p{N}", r"\w+|\W+"])
'\\p{N}(?#then)\\w+|\\W+'
>>> stages(r"\p{N}(?#then)\w+|\W+")
['\\p{N}', '\\w+|\\W+']
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["in_stages", "stages"]

SEPARATOR = "(?#then)"


def stages(regex: str) -> list[str]:
    """Return the expressions of a pattern, in order. Most patterns have one."""
    return regex.split(SEPARATOR)


def in_stages(expressions: Sequence[str]) -> str:
    """Return the pattern that applies the expressions one after the other."""
    return SEPARATOR.join(expressions)
