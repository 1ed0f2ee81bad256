"""Objects as notebooks show them: a small table of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["html_table", "shortened"]


def html_table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A table of names and values under a title, as `_repr_html_` returns it.

    Everything is escaped: a value may hold text of a corpus, which must not become part of the page.

    >>> html_table("Words", [("distinct", "<3>")])
    '<table><caption>Words</caption><tr><th>distinct</th><td>&lt;3&gt;</td></tr></table>'
    """
    lines = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def shortened(text: str, num_characters: int = 40) -> str:
    """`text`, or its beginning and an ellipsis where it is longer than `num_characters`.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= num_characters else text[: num_characters - 1] + "…"
