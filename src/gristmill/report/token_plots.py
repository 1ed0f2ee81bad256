"""Token plots: lengths, frequencies and compression of one or several tokenizers, and bars of named values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.analysis.token_text import shortened
from gristmill.report import figures
from gristmill.report.comparison import COLOURS, DASHES
from gristmill.report.drawing import BLUE, End, Plot, name_lines

Numbers = NDArray[Any]

NAME_LENGTH = 18  # characters of a name in a plot
MAX_LENGTH = 24  # bytes: longer tokens are drawn together


@dataclass(frozen=True)
class Line:
    """The curve of one tokenizer, with its name and line style. The name is empty if there is only one."""

    name: str
    x: Numbers
    y: Numbers
    colour: str = BLUE
    dash: str = "solid"


def line_style(number: int) -> tuple[str, str]:
    """Return the colour and the dash of line `number`; several tokenizers on one page keep theirs."""
    return COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]


def zipf_plot(lines: Sequence[Line], what: str) -> Plot | None:
    """Return the count of each token against its rank, the most frequent first."""
    if not any(len(line.x) for line in lines):
        return None

    def draw(axes: Any) -> None:
        log_axis(axes, "x", [line.x for line in lines])
        log_axis(axes, "y", [line.y for line in lines])
        _draw_lines(axes, lines)
        axes.set_ylabel("count")

    note = f"How often {what} uses each token, the most frequent first. A straight line is Zipf's law."
    return Plot("zipf", "Token frequencies", note, draw, across="rank of the token")


def compression_plot(lines: Sequence[Line], what: str) -> Plot | None:
    """Return the bytes per token against the vocabulary size, from the merges of one training run."""
    lines = [line for line in lines if len(line.x)]
    if not lines:
        return None

    def draw(axes: Any) -> None:
        log_axis(axes, "x", [line.x for line in lines])
        axes.set_ylim(0, 1.12 * max(float(line.y.max()) for line in lines))
        _draw_lines(axes, lines, end=lambda y: f"{y:.2f}", at_right=False)
        axes.set_ylabel("bytes per token")

    note = f"On {what}, with only the first merges. Exact at every size: no other tokenizer was trained."
    return Plot("compression", "Bytes per token by vocabulary size", note, draw, across="vocabulary size")


def length_plot(histograms: Sequence[tuple[str, Numbers]]) -> Plot:
    """Return the number of tokens of each length, in bytes. Each histogram is that of one tokenizer."""
    several = len(histograms) > 1  # vocabularies of different sizes: shares can be compared, numbers cannot
    folded = [(name, _folded(counts) * (100 / counts.sum() if several else 1)) for name, counts in histograms]
    longest = max(len(counts) for _, counts in folded) - 1
    is_folded = any(len(counts) - 1 > MAX_LENGTH for _, counts in histograms)

    def draw(axes: Any) -> None:
        width = 0.8 / len(folded)
        for number, (_, counts) in enumerate(folded):
            lengths = np.arange(1, len(counts))
            shift = (number - (len(folded) - 1) / 2) * width
            axes.bar(lengths + shift, counts[1:], width, color=line_style(number)[0], linewidth=0)
        ticks = sorted({1, longest, *range(4, longest, 4)} - ({longest - 1} if longest > 5 else set()))
        if len(ticks) > 1 and ticks[-1] - ticks[-2] < 2:
            del ticks[-2]
        axes.set_xlim(0.4, longest + 0.6)
        axes.set_xticks(ticks, [f"{tick}+" if is_folded and tick == longest else str(tick) for tick in ticks])
        axes.yaxis.set_major_formatter(lambda value, _: figures.short(value))
        axes.set_ylabel("% of the vocabulary" if several else "tokens")

    note = "Tokens of the vocabulary by length, without special tokens."
    return Plot("lengths", "Token lengths", note, draw, across="bytes")


def bar_plot(name: str, title: str, note: str, bars: Sequence[tuple[str, float, str]], across: str) -> Plot | None:
    """Return horizontal bars: name, value and the text after the bar. The first is at the top."""
    if not bars:
        return None

    def draw(axes: Any) -> None:
        places = np.arange(len(bars))[::-1]
        values = [value for _, value, _ in bars]
        axes.barh(places, values, min(0.62, 0.12 * len(bars)), color=BLUE, linewidth=0)
        for place, (_, value, words) in zip(places, bars, strict=True):
            axes.annotate(words, (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
        axes.set_yticks(places, [shortened(label, NAME_LENGTH) for label, *_ in bars])
        axes.set_ylim(-0.6, len(bars) - 0.4)
        axes.set_xlim(0, 1.28 * max([*values, 1e-9]))
        axes.grid(visible=False)
        axes.xaxis.set_major_formatter(lambda value, _: figures.short(value))
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="x", length=0)

    return Plot(name, title, note, draw, across=across)


def memory_plot(samples: Sequence[tuple[float, int]]) -> Plot | None:
    """Return the resident memory over the time of a run."""
    if len(samples) < 2:
        return None
    seconds, sizes = np.array(samples, float).T
    scale, unit = figures.byte_unit(float(sizes.max()))

    def draw(axes: Any) -> None:
        axes.plot(seconds, sizes / scale, color=BLUE, linewidth=1.6)
        axes.set_ylim(0, 1.12 * float(sizes.max()) / scale)
        axes.set_ylabel(f"memory ({unit})")
        axes.set_xlim(0, 1.02 * float(seconds[-1]))

    note = f"Resident memory of the process. Peak of the samples: {figures.size(float(sizes.max()))}."
    return Plot("memory", "Memory over time", note, draw, last_step=float(seconds[-1]), across="seconds")


def winners_plot(counts: Numbers | None) -> Plot | None:
    """Return the count of the pair that each merge joined."""
    if counts is None or not len(counts) or not counts.any():
        return None
    places = np.unique(np.round(np.geomspace(1, len(counts), 400)).astype(np.int64))
    line = Line("", places, np.maximum(counts[places - 1].astype(np.int64), 1))

    def draw(axes: Any) -> None:
        log_axis(axes, "x", [line.x])
        log_axis(axes, "y", [line.y])
        _draw_lines(axes, [line], end=lambda y: f"{y:,.0f}")
        axes.set_ylabel("count of the pair")

    note = "How often the winning pair occurred in the training corpus when it was merged."
    return Plot("winners", "Count of the winning pair", note, draw, across="merge")


def _draw_lines(
    axes: Any, lines: Sequence[Line], *, end: Callable[[float], str] | None = None, at_right: bool = True
) -> None:
    """Draw the lines, each labelled at its end or, with `at_right`, at the right of the plot."""
    ends: list[End] = []
    for line in lines:
        if not len(line.x):
            continue
        axes.plot(
            line.x,
            line.y,
            color=line.colour,
            linestyle=line.dash,
            linewidth=1.6,
            marker="o" if len(line.x) == 1 else "",
            markersize=4,
        )
        words = [shortened(line.name, NAME_LENGTH)] * bool(line.name) + ([end(float(line.y[-1]))] if end else [])
        if words:
            ends.append((float(line.x[-1]), float(line.y[-1]), "\n".join(words), line.colour))
    if ends:
        name_lines(
            axes, ends, lines=max(words.count("\n") + 1 for _, _, words, _ in ends), at_right=at_right and len(ends) > 1
        )


def log_axis(axes: Any, which: str, columns: Sequence[Numbers]) -> None:
    """Use a logarithmic axis with plain numbers, as wide as the values."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    values = np.concatenate([np.asarray(column, float) for column in columns])
    low, high = float(values.min()), float(values.max())
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    (axes.set_xlim if which == "x" else axes.set_ylim)(low / 1.1, max(high * 1.1, low * 2))
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 30 * low else (1.0,)))
    axis.set_major_formatter(lambda value, _: figures.short(value))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _folded(counts: Numbers) -> Numbers:
    """Return a histogram whose last entry counts all longer tokens too."""
    if len(counts) - 1 <= MAX_LENGTH:
        return counts
    return np.append(counts[:MAX_LENGTH], counts[MAX_LENGTH:].sum())
