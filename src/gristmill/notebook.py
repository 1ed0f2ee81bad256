"""HTML tables that notebooks show for objects."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["html_table", "shortened"]


def html_table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return an HTML table of names and values with a title, for `_repr_html_`.

    All text is escaped, because a value may contain text of a corpus, which must not become markup.

    >>> html_table("Words", [("distinct", "<3>")])
    '<table><caption>Words</caption><tr><th>distinct</th><td>&lt;3&gt;</td></tr></table>'
    """
    lines = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def shortened(text: str, num_characters: int = 40) -> str:
    """Return `text`, cut to `num_characters` with an ellipsis if it is longer.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= num_characters else text[: num_characters - 1] + "…"
