"""Bar and line charts as SVG text, without a plotting library; light and dark follow the reader's setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "bar_chart", "line_chart"]

WIDTH = 820
LETTER = 7.0  # width of a character at 12 px, rounded up
STYLE = """<style>
svg { --ink: #292524; --soft: #78716c; --rule: #e7e5e4; --paper: #ffffff;
  --a: #c2410c; --b: #64748b; --c: #0f766e; --d: #7c3aed; --e: #a16207; --f: #be185d;
  font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e7e5e4; --soft: #a8a29e; --rule: #44403c; --paper: #1c1917;
  --a: #fb923c; --b: #94a3b8; --c: #2dd4bf; --d: #c4b5fd; --e: #facc15; --f: #f472b6; } }
text { fill: var(--ink); } .soft { fill: var(--soft); } .head { font-size: 15px; font-weight: 600; }
.rule { stroke: var(--rule); } .whisker { stroke: var(--ink); stroke-opacity: .6; } .strong { font-weight: 600; }
</style>"""


@dataclass(frozen=True)
class Bar:
    """One row of a bar chart: one value per series, or the reason why it is missing."""

    label: str
    values: list[float | None]
    texts: Sequence[str]  # shown after each bar
    is_ours: bool = False
    spreads: Sequence[tuple[float, float] | None] = ()  # lowest and highest value of each series


def bar_chart(
    title: str, bars: Sequence[Bar], *, series: Sequence[str] = ("",), caption: str = "", log_scale: bool = False
) -> str:
    """Return a chart of horizontal bars as SVG.

    Args:
        title: Heading, also the name for screen readers.
        bars: The rows from top to bottom. A value of None draws no bar, only its text.
        series: Names of the values of every row; a legend shows them if there are several.
        caption: Text below the bars.
        log_scale: Draw the logarithm of the values, from the power of ten below the smallest one.
    """
    left = 24 + LETTER * max((len(bar.label) for bar in bars), default=0)
    shown = [text for bar in bars for value, text in zip(bar.values, bar.texts, strict=True) if value is not None]
    room = WIDTH - left - 36 - LETTER * max(map(len, shown), default=0)
    known = [value for bar in bars for value in bar.values if value is not None and (value > 0 or not log_scale)]
    known += [spread[1] for bar in bars for spread in bar.spreads if spread is not None]
    length = _scale(known, max(room, 60.0), log_scale)
    thick = 16 if len(series) == 1 else 14
    parts, y = [], 44.0
    if len(series) > 1:
        parts.append(_legend(series, [_bar_style(False, i, len(series)) for i in range(len(series))], y))
        y += 24
    if log_scale:
        parts.append(_powers(known, length, left, y, y + len(bars) * (thick * len(series) + 8) - 4))
    for bar in bars:
        middle = y + thick * len(series) / 2
        parts.append(_text(left - 8, middle + 4, bar.label, anchor="end", strong=bar.is_ours))
        for i, (value, text) in enumerate(zip(bar.values, bar.texts, strict=True)):
            top, long = y + i * thick, 0.0 if value is None else length(value)
            if value is not None:
                style = _bar_style(bar.is_ours, i, len(series))
                parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{long:.1f}" height="{thick - 2}" {style}/>')
            spread = bar.spreads[i] if i < len(bar.spreads) else None
            if spread is not None and spread[0] < spread[1]:
                parts.append(_whisker(left + length(spread[0]), left + length(spread[1]), top + thick / 2 - 1))
                long = max(long, length(spread[1]))
            if value is None:
                space = int((WIDTH - left - 30) / LETTER)
                text = text if len(text) <= space else text[: space - 1] + "…"
                top = middle - thick / 2 if bar.values.count(None) == len(series) else top
            parts.append(_text(left + long + 6, top + thick - 4, text, soft=value is None, strong=bar.is_ours))
        y += thick * len(series) + 8
    return _page(title, parts, y + 16 * log_scale, caption)


def line_chart(
    title: str, lines: Mapping[str, Sequence[tuple[float, float]]], *, x_label: str, y_label: str, caption: str = ""
) -> str:
    """Return a chart of lines as SVG; both axes are linear and start at 0.

    Args:
        title: Heading, also the name for screen readers.
        lines: The points of every line, by name.
        x_label: Name of the horizontal axis.
        y_label: Name of the vertical axis.
        caption: Text below the chart.
    """
    points = [point for line in lines.values() for point in line]
    left, right, top, bottom = 64.0, WIDTH - 28.0, 84.0, 320.0
    across = _scale([x for x, _ in points], right - left, False)
    up = _scale([y for _, y in points], bottom - top, False)
    parts = [_legend(list(lines), [_line_style(i) for i in range(len(lines))], 44.0)]
    for value in _ticks(max((y for _, y in points), default=1.0)):
        y = bottom - up(value)
        parts.append(f'<line class="rule" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(left - 8, y + 4, f"{value:,g}", anchor="end", soft=True))
    for value in sorted({x for x, _ in points}):
        parts.append(_text(left + across(value), bottom + 18, f"{value:,g}", anchor="middle", soft=True))
    parts.append(_text(left - 8, top - 12, y_label, soft=True, anchor="start"))
    parts.append(_text((left + right) / 2, bottom + 38, x_label, anchor="middle", soft=True))
    for i, line in enumerate(lines.values()):
        places = [(left + across(x), bottom - up(y)) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="var(--{_colour(i)})" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {_line_style(i)}/>' for x, y in places]
    return _page(title, parts, bottom + 46, caption)


def _scale(values: Sequence[float], room: float, log_scale: bool) -> Callable[[float], float]:
    """Return the function from a value to its length in pixels."""
    most = max(values, default=1.0) or 1.0
    if not log_scale:
        return lambda value: max(0.0, value) / most * room
    low = 10.0 ** (math.floor(math.log10(min(values, default=1.0))) - 0.3)
    whole = math.log(most / low) or 1.0
    return lambda value: max(0.0, math.log(max(value, low) / low)) / whole * room


def _powers(values: Sequence[float], length: Callable[[float], float], left: float, top: float, bottom: float) -> str:
    """Return a line and a number for every power of ten among the values."""
    first, last = (math.ceil(math.log10(end) - 1e-9) for end in (min(values, default=1.0), max(values, default=1.0)))
    parts = []
    for value in (10.0**i for i in range(first, last + 1)):
        if value <= max(values, default=1.0):
            x = left + length(value)
            parts.append(f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
            parts.append(_text(x, bottom + 14, f"{value:,g}", anchor="middle", soft=True))
    return "".join(parts)


def _ticks(most: float) -> list[float]:
    """Return four to eight round values from 0 to at most `most`.

    >>> _ticks(7.0)
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    """
    unit = 10.0 ** math.floor(math.log10(most)) if most > 0 else 1.0
    step = next(unit * part for part in (0.2, 0.5, 1.0, 2.0) if most / (unit * part) <= 8)
    return [step * i for i in range(int(most / step + 1e-9) + 1)]


def _colour(index: int) -> str:
    return "abcdef"[index % 6]


def _line_style(index: int) -> str:
    return f'fill="var(--{_colour(index)})"'


def _bar_style(is_ours: bool, index: int, num_series: int) -> str:
    opacity = 1.0 if num_series == 1 else 0.5 + 0.5 * index / (num_series - 1)
    return f'rx="2" fill="var(--{"a" if is_ours else "b"})" fill-opacity="{opacity:.2g}"'


def _whisker(low: float, high: float, y: float) -> str:
    ends = "".join(f"M{x:.1f} {y - 3:.1f}V{y + 3:.1f}" for x in (low, high))
    return f'<path class="whisker" d="M{low:.1f} {y:.1f}H{high:.1f}{ends}"/>'


def _legend(names: Sequence[str], styles: Sequence[str], y: float) -> str:
    parts, x = [], 24.0
    for name, style in zip(names, styles, strict=True):
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="12" height="12" {style}/>' + _text(x + 18, y + 10, name))
        x += 42 + LETTER * len(name)
    return "".join(parts)


def _text(x: float, y: float, text: str, *, anchor: str = "start", soft: bool = False, strong: bool = False) -> str:
    kind = " ".join(["soft"] * soft + ["strong"] * strong)
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _page(title: str, parts: Sequence[str], height: float, caption: str) -> str:
    lines = _wrapped(caption, int((WIDTH - 48) / LETTER))
    notes = [_text(24, height + 16 + 16 * i, line, soft=True) for i, line in enumerate(lines)]
    total = height + 16 * len(lines) + 20
    head = f'<text class="head" x="24" y="28">{escape(title)}</text>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total:.0f}" width="{WIDTH}" '
            f'height="{total:.0f}" role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>{STYLE}",
            f'<rect width="{WIDTH}" height="{total:.0f}" fill="var(--paper)"/>{head}',
            *parts,
            *notes,
            "</svg>\n",
        ]
    )


def _wrapped(text: str, num_letters: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + len(word) < num_letters:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines
