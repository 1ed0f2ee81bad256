"""Plain aligned tables, and unambiguous display of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from gristmill.analysis.token_text import show_token

__all__ = ["bar", "columns", "one_line", "pairs", "show_token"]


def pairs(rows: Sequence[tuple[str, str]], *, indent: int = 2) -> str:
    """Return one line per name and value, with the values aligned.

    >>> print(pairs([("words", "12"), ("bytes per token", "3.9")]))
      words            12
      bytes per token  3.9
    """
    rows = [(one_line(name), one_line(value)) for name, value in rows]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{'':{indent}}{name:{width}}  {value}" for name, value in rows)


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], *, indent: int = 2) -> str:
    """Return a table with the first column left-aligned and the others right-aligned.

    >>> print(columns(["stage", "seconds"], [["count", "0.25"], ["merge", "11.5"]]))
      stage  seconds
      count     0.25
      merge     11.5
    """
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip_longest(head, *rows, fillvalue="")]
    lines = []
    for row in [head, *rows]:
        cells = [
            f"{row[0]:{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def one_line(text: str) -> str:
    r"""Return the text of a cell, such as a file name, with control characters and line breaks escaped.

    >>> print(one_line("a\nb\x1b[31m.txt"))
    a\nb\x1b[31m.txt
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def bar(share: float, width: int = 30) -> str:
    """Return the bar of a histogram, at least a thin one if `share` is not 0.

    >>> bar(0.5, 4), bar(0.001, 4), bar(0, 4)
    ('██', '▏', '')
    """
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
