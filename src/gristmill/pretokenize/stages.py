r"""Stages: patterns of several expressions, each of which cuts the pieces that the one before it has made.

Some models of Hugging Face cut text so: StarCoder takes digits out first and cuts what is left by GPT-2's expression.
An expression sees one piece and nothing around it, so `(?!\S)` holds at the end of each piece; no single expression
says that. A pattern in stages is one string all the same, in which a comment separates the expressions.

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
    """The expressions of a pattern, in order; most have one."""
    return regex.split(SEPARATOR)


def in_stages(expressions: Sequence[str]) -> str:
    """The pattern that applies the expressions one after the other."""
    return SEPARATOR.join(expressions)
