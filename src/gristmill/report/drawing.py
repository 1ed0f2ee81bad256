"""Drawing: shared plot style, and rendering as SVG for the page and PNG for everything else.

A line is labelled at its end, in its colour. The plots depend only on the records: no date, no random ids.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gristmill.errors import CheckpointError
from gristmill.report.curves import smoothed, thinned
from gristmill.report.records import Column

INK, GREY, RULE = "#292524", "#78716c", "#e7e5e4"
BLUE, RUST, TEAL = "#1d4ed8", "#c2410c", "#0f766e"

WIDE = (9.6, 3.9)  # inches; the page shows 100 pixels per inch
NARROW = (4.6, 2.9)
PNG_DOTS_PER_INCH = 160
LABEL_POINTS = 11  # the height of a label at the end of a line

STYLE = {
    "text.parse_math": False,  # a dollar sign in the name of a statistic is not a formula
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": GREY,
    "axes.edgecolor": RULE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",  # text stays text: sharp, small, in the page font
    "svg.hashsalt": "gristmill",
}
PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class Plot:
    """A plot that can be drawn in any size."""

    name: str  # of its file, without suffix
    title: str
    note: str  # its meaning, as caption and as alternative text
    draw: Callable[[Any], None]  # on axes
    wide: bool = False
    last_step: float = 0  # end of the horizontal axis
    across: str = "step"  # label of the horizontal axis


def render(plot: Plot, format: Literal["svg", "png"], size: tuple[float, float]) -> bytes:
    """Return the plot as a file; raise `CheckpointError` for numbers too large for matplotlib."""
    try:
        return _render(plot, format, size)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the plot {plot.name!r} cannot be drawn ({type(error).__name__}: {str(error)[:80]}): metrics.jsonl "
            f"contains numbers that are out of range. Correct or remove those records."
        ) from error


def _render(plot: Plot, format: Literal["svg", "png"], size: tuple[float, float]) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": plot.name}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.set_xlabel(plot.across)
        if format == "png":  # the page writes the title as text
            axes.set_title(plot.title, pad=12)
        steps_below(axes, plot.last_step, size, whole=plot.across == "step")
        plot.draw(axes)
        buffer = io.BytesIO()
        if format == "png":
            figure.savefig(buffer, format="png", dpi=PNG_DOTS_PER_INCH, metadata={"Software": None})
            return buffer.getvalue()
        with warnings.catch_warnings():
            # The text of an SVG stays text, so the browser finds a font for characters that DejaVu Sans lacks.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
        return buffer.getvalue().replace(b"'DejaVu Sans'", PAGE_FONT.replace("'", "&apos;").encode())


End = tuple[float, float, str, str]  # x, y, words, colour


def noisy_line(axes: Any, x: Column, y: Column, colour: str) -> tuple[float, float]:
    """Draw every record pale and their running mean bold; return its end."""
    thin_x, thin_y = thinned(x, y)
    if len(thin_x) > 2:
        axes.plot(thin_x, thin_y, color=colour, alpha=0.25, linewidth=0.8)
        thin_x, thin_y = thinned(x, smoothed(y))
    axes.plot(thin_x, thin_y, **stroke(colour, len(thin_x)))
    return float(thin_x[-1]), float(thin_y[-1])


def points(axes: Any, x: Column, y: Column, colour: str) -> tuple[float, float]:
    """Draw a line, with a dot per record if there are few; return its end."""
    x, y = thinned(x, y)
    axes.plot(x, y, color=colour, linewidth=1.4, marker="o" if len(x) <= 60 else "", markersize=3.5, zorder=3)
    return float(x[-1]), float(y[-1])


def diamonds(axes: Any, x: Column, y: Column, colour: str) -> tuple[float, float]:
    """Draw marks without a line; return the last one."""
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    axes.plot(x, y, color=colour, linestyle="", marker="D", markersize=5, markerfacecolor="white", zorder=4)
    return float(x[-1]), float(y[-1])


def stroke(colour: str, num_points: int) -> dict[str, Any]:
    """Return the style of a line, or of a dot if there is only one point."""
    return {"color": colour, "linewidth": 1.6, "marker": "o" if num_points == 1 else "", "markersize": 4}


def threshold(axes: Any, y: float, words: str) -> None:
    axes.axhline(y, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.annotate(
        words,
        (1, y),
        (-2, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        color=GREY,
        fontsize=8,
    )


def name_lines(axes: Any, ends: list[End], *, lines: int = 1, at_right: bool = False) -> None:
    """Label each line at its end, and move labels apart that would overlap.

    at_right: all labels to the right of the longest line, where no other line crosses them.
    """
    right = max(x for x, *_ in ends)
    places = wanted = [0.0]
    if len(ends) > 1:
        axes.figure.draw_without_rendering()  # computes the layout, and thereby the positions of the ends
        heights = [axes.transData.transform((right, y))[1] for y in (axes.get_ylim()[1], *(y for _, y, *_ in ends))]
        top, *places = (72 / axes.figure.dpi * height for height in heights)  # in points
        wanted = pushed_apart(places, LABEL_POINTS * lines, highest=top)
    for (x, y, words, colour), place, target in zip(ends, places, wanted, strict=True):
        axes.annotate(
            words,
            (right if at_right or x > 0.85 * right else x, y),
            (7, target - place),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=8.5,
            linespacing=1.15,
            annotation_clip=False,
        )


def pushed_apart(places: list[float], distance: float, *, highest: float = math.inf) -> list[float]:
    """Return the places, moved as little as needed to be `distance` apart, none above `highest`.

    >>> pushed_apart([50.0, 52.0], 10)
    [46.0, 56.0]
    >>> pushed_apart([50.0, 50.0, 50.0], 10)
    [40.0, 50.0, 60.0]
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    # Groups of touching labels. Each number is the position of the first label that suits one label of the group best.
    blocks: list[list[float]] = []
    for number, index in enumerate(order):
        blocks.append([places[index] - distance * number])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    firsts = [_mean(block) for block in blocks for _ in block]
    moved = list(places)
    for number, (index, first) in enumerate(zip(order, firsts, strict=True)):
        moved[index] = first + distance * number
    excess = max(0.0, max(moved) - highest)
    return [place - excess for place in moved]


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def scale_y(axes: Any, *columns: Column, enough: float) -> None:
    """Use a logarithmic axis with plain numbers if the values span a factor of `enough`, so that the end of a run is
    not flat below its beginning.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    values = np.concatenate(columns)
    low, high = float(values.min()), float(values.max())
    if low <= 0 or high < enough * low:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if low == high:
            axes.set_ylim(low - 0.1 * abs(low) - 0.01, high + 0.1 * abs(high) + 0.01)
        return
    axes.set_yscale("log")
    axes.set_ylim(low / 1.08, high * 1.08)
    dense = high < 30 * low
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if dense else (1.0, 3.0)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def steps_below(axes: Any, last_step: float, size: tuple[float, float], *, whole: bool = True) -> None:
    """Use the same horizontal axis for every plot, so that they can be compared; `whole`: only integer ticks."""
    from matplotlib.ticker import MaxNLocator

    num_ticks = 9 if size == WIDE else 5
    axes.xaxis.set_major_locator(MaxNLocator(nbins=num_ticks, steps=[1, 2, 2.5, 5, 10], integer=whole))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if whole else f"{value:g}")
    axes.set_xlim(0, max(1, last_step) * 1.01)


def above(y: Column) -> float:
    """Return the end of an axis that begins at 0."""
    return 1.12 * float(np.nanmax(y)) or 1.0


def finite(y: Column) -> Column:
    return y[np.isfinite(y)]


def count_unit(number: float) -> tuple[float, str]:
    for scale, unit in ((1e9, "billion "), (1e6, "million "), (1e3, "thousand ")):
        if number >= scale:
            return scale, unit
    return 1.0, ""
