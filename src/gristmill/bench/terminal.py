"""The Markdown of a result, laid out for a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby

__all__ = ["for_terminal"]

_LEAST_WIDTH = 12  # of a wrapped last column: in less, most words would be cut


def for_terminal(markdown: str, width: int) -> str:
    """Return the text with plain tables and, if possible, lines of at most `width` characters.

    A row without numbers is its name and its reason, so that a long reason widens no column. If a table is too wide,
    its header takes several lines, and its last column is wrapped if there is room.

    >>> print(for_terminal('''| system | runs |          ids |
    ... |:-------|-----:|-------------:|
    ... | ours   |    5 |        equal |
    ... | b      |    0 | crashed (11) |
    ...
    ... **Busy machine**: repeat it.''', 21))
      system  runs    ids
      ours       5  equal
      b       crashed (11)
    <BLANKLINE>
    Busy machine: repeat
    it.
    """
    blocks = []
    for block in markdown.split("\n\n"):
        parts = groupby(block.split("\n"), key=lambda line: line.startswith("|"))
        blocks.append(
            "\n".join(_table(list(lines), width) if is_table else _prose(lines, width) for is_table, lines in parts)
        )
    return "\n\n".join(blocks)


def _prose(lines: Iterable[str], width: int) -> str:
    return "\n".join(
        textwrap.fill(
            line.replace("**", ""),
            width,
            subsequent_indent="  " if line.startswith("* ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )


def _table(lines: Sequence[str], width: int) -> str:
    header, _, *rows = ([cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines)
    full = [row for row in rows if not _is_empty(row)]
    heads = [[name] for name in header]
    if _total(_widths(heads, full)) > width:
        heads = [re.split(" (?!/)", name) for name in header]
    widths = _widths(heads, full)
    widths[0] = max(len(row[0]) for row in [header, *rows])
    room = width - _total(widths[:-1]) - 2
    wraps = widths[-1] > room >= _LEAST_WIDTH
    if wraps:
        widths[-1] = room
    shown = [_aligned(cells, widths, wraps) for cells in _from_the_bottom(heads)]
    for row in rows:
        if _is_empty(row):
            shown += _aligned_reason(row, widths[0], width)
        else:
            last, *more = textwrap.wrap(row[-1], room) if wraps and row[-1] else [row[-1]]
            shown.append(_aligned([*row[:-1], last], widths, wraps))
            shown += [" " * (width - room) + line for line in more]
    return "\n".join(line.rstrip() for line in shown)


def _is_empty(row: Sequence[str]) -> bool:
    """Return whether a row has a reason instead of numbers."""
    return len(row) > 2 and all(cell in ("0", "–") for cell in row[1:-1])


def _aligned_reason(row: Sequence[str], name_width: int, width: int) -> list[str]:
    indent = name_width + 4
    first, *more = textwrap.wrap(row[-1], max(width - indent, _LEAST_WIDTH)) or [""]
    return [f"  {row[0]:{name_width}}  {first}", *(" " * indent + line for line in more)]


def _aligned(cells: Sequence[str], widths: Sequence[int], wraps: bool) -> str:
    """Return a line; the first column to the left, and also the last one if its texts are wrapped."""
    last = len(cells) - 1 if wraps else 0
    return "".join(
        "  " + (cell.ljust(width) if index in (0, last) else cell.rjust(width))
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )


def _from_the_bottom(heads: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the lines of a header; a name with fewer words is in the last ones."""
    depth = max(map(len, heads))
    return [list(line) for line in zip(*([""] * (depth - len(head)) + [*head] for head in heads), strict=True)]


def _widths(heads: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, [*head, *(row[index] for row in rows)])) for index, head in enumerate(heads)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * len(widths)
