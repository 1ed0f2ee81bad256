"""Posterior: plots of the latents of a variational autoencoder, for the report and for the monitor.

Shapes: S measurements of the monitor, Z latent dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.report.curves import thinned
from gristmill.report.drawing import (
    BLUE,
    GREY,
    INK,
    RUST,
    TEAL,
    End,
    Plot,
    name_lines,
    stroke,
)
from gristmill.report.records import Column, Posterior

MAX_COLUMNS, MAX_ROWS = 64, 32  # cells of a heat map: each is a separate shape in the page
MAX_NAMES, NAME_WIDTH = 6, 0.24  # names of alarms in a plot; their width as a share of the plot width
WASH = "#fdece3"  # background of the steps in which an alarm was active
KIND_WORDS = {
    "collapse": "collapse",
    "few_units": "few active units",
    "ignored": "latents ignored",
    "prior": "far from the prior",
}


def posterior_plots(posterior: Posterior) -> list[Plot]:
    """Return the plots that have records."""
    found = (information(posterior), active_units(posterior), kl_per_dimension(posterior), gaps(posterior))
    return [plot for plot in found if plot is not None]


def information(posterior: Posterior) -> Plot | None:
    """KL, mutual information and its measurable limit."""
    table = posterior.table
    if not table.has("kl") and not table.has("mutual_information"):
        return None

    def draw(axes: Any) -> None:
        ends: list[End] = []
        shade_alarms(axes, posterior, named=True)
        _line(axes, posterior, "mutual_information_limit", "limit of MI", GREY, ends, linestyle=(0, (4, 3)))
        _line(axes, posterior, "kl", "KL", BLUE, ends, form=".2f")
        _line(axes, posterior, "mutual_information", "MI", RUST, ends, form=".2f")
        top = max(1.12 * greatest(table[name]) for name in ("kl", "mutual_information") if table.has(name))
        limit = float(np.nanmax(table["mutual_information_limit"], initial=0.0))
        # A KL far above the limit must not flatten the mutual information; a KL far below it needs no limit.
        axes.set_ylim(0, max(top, 1.12 * limit if top > 0.4 * limit else 1.0))
        axes.set_ylabel("nats per sequence")
        name_lines(axes, [end for end in ends if end[1] <= axes.get_ylim()[1]])

    note = "KL to the prior, and mutual information (MI) of latents and sequences, measurable up to its limit."
    return Plot("posterior_information", "KL and mutual information", note + _shaded(posterior), draw)


def active_units(posterior: Posterior) -> Plot | None:
    """Number of dimensions in use."""
    table, latent_dim = posterior.table, posterior.kl_SZ.shape[1]
    if not table.has("active_units"):
        return None

    def draw(axes: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        ends: list[End] = []
        shade_alarms(axes, posterior)
        _line(axes, posterior, "active_units", "var > 0.01:", BLUE, ends, form=".0f")
        _line(axes, posterior, "active_units_strict", "var > 0.2:", TEAL, ends, form=".0f")
        axes.set_ylim(-0.02 * latent_dim, 1.08 * max(latent_dim, 1))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 4, 5, 8, 10], integer=True))
        axes.set_ylabel(f"of {latent_dim} dimensions")
        name_lines(axes, ends)

    note = "Dimensions whose mean varies between sequences, with a variance above 0.01 and above 0.2."
    return Plot("posterior_units", "Active units", note + _shaded(posterior), draw)


def kl_per_dimension(posterior: Posterior) -> Plot | None:
    """One row per dimension, one column per measurement; the dimension with the most KL is on top."""
    if not np.isfinite(posterior.kl_SZ).any():
        return None
    latent_dim = posterior.kl_SZ.shape[1]

    def draw(axes: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap, PowerNorm
        from matplotlib.ticker import MaxNLocator

        edges, cells_RS = heat_map(posterior.table.steps, posterior.kl_SZ)
        # With more than 50 colours, matplotlib would draw the colour bar as a bitmap.
        colours = LinearSegmentedColormap.from_list("kl", ["#f5f5f4", "#93b4f5", BLUE, "#0b1f5c"], N=48)
        # Square-root scale: 0.1 nats is a dimension in use and must be visible.
        norm = PowerNorm(0.5, vmin=0, vmax=max(greatest(cells_RS.max(0)), 0.5))
        bottom_edges = np.linspace(latent_dim, 0, len(cells_RS) + 1)
        mesh = axes.pcolormesh(edges, bottom_edges, cells_RS, cmap=colours, norm=norm, edgecolors="face", linewidth=0.4)
        axes.set_ylim(latent_dim, 0)
        axes.grid(False)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 4, 5, 8, 10], integer=True))
        axes.set_ylabel("dimension, by its KL")
        for span in posterior.spans:  # shading would change the colours
            axes.vlines(
                [span.first, *([span.last] if span.is_over else [])],
                0,
                latent_dim,
                color=RUST,
                linewidth=0.7,
                alpha=0.6,
            )
        bar = axes.figure.colorbar(mesh, cax=axes.inset_axes((1.02, 0, 0.025, 1)))
        bar.outline.set_visible(False)
        bar.set_label("nats", color=GREY)
        bar.ax.tick_params(size=0)

    note = "Each row is a dimension, the one with the most KL on top; pale rows carry no information."
    return Plot("posterior_kl_per_dimension", "KL per dimension", note, draw)


def heat_map(steps: Column, kl_SZ: Column) -> tuple[Column, Column]:
    """Return the edges of the columns, and R x S cells of at most 32 rows and 64 columns, which are means of the data.

    The dimensions are sorted by their KL at the end, the greatest last.

    >>> edges, cells = heat_map(np.array([10.0, 20.0]), np.array([[0.0, 5.0], [1.0, 3.0]]))
    >>> edges.tolist(), cells.tolist()
    ([5.0, 15.0, 25.0], [[0.0, 1.0], [5.0, 3.0]])
    """
    late_Z = np.nan_to_num(kl_SZ[-max(1, len(kl_SZ) // 5) :]).mean(0)
    kl_SZ = np.nan_to_num(kl_SZ)[:, np.argsort(late_Z, kind="stable")]
    columns, rows = _groups(len(steps), MAX_COLUMNS), _groups(kl_SZ.shape[1], MAX_ROWS)
    cells_SR = np.add.reduceat(np.add.reduceat(kl_SZ, columns, axis=0), rows, axis=1)
    cells_SR /= np.outer(np.diff([*columns, len(steps)]), np.diff([*rows, kl_SZ.shape[1]]))
    return _edges(steps, columns), cells_SR.T


def _groups(number: int, most: int) -> NDArray[np.int64]:
    """Return the first index of each of at most `most` groups of equal size; the last may be smaller."""
    return np.arange(0, number, -(-number // most))


def _edges(steps: Column, columns: NDArray[np.int64]) -> Column:
    """Return the column edges: half-way to the neighbours, and as far on the other side for the first and last."""
    if len(steps) == 1:
        return np.array([0.0, 2 * steps[0]])
    middles = (steps[1:] + steps[:-1]) / 2
    first, last = steps[0] - (middles[0] - steps[0]), steps[-1] + (steps[-1] - middles[-1])
    return np.concatenate([[first], middles[columns[1:] - 1], [last]])


def greatest(y: Column) -> float:
    """Return the upper end of an axis: the greatest value, except for high values at the start that flatten the rest.

    >>> greatest(np.array([90.0] + [1.0] * 19)), greatest(np.array([2.0] + [1.0] * 19))
    (1.0, 2.0)
    """
    later = y[len(y) // 10 + 1 :]
    if len(y) < 10 or not np.isfinite(later).any():
        return float(np.nanmax(y))
    usual = float(np.nanmax(later))
    return usual if np.nanmax(y) > 3 * usual else float(np.nanmax(y))


def gaps(posterior: Posterior) -> Plot | None:
    """How much worse the decoder is with wrong latents."""
    table = posterior.table
    if not table.has("gap_shuffled") and not table.has("gap_prior"):
        return None

    def draw(axes: Any) -> None:
        ends: list[End] = []
        shade_alarms(axes, posterior)
        _line(axes, posterior, "gap_prior", "from the prior", TEAL, ends, form=".2f")
        _line(axes, posterior, "gap_shuffled", "shuffled", RUST, ends, form=".2f")
        axes.axhline(0, color=INK, linewidth=0.8)
        values = np.concatenate([table[name][np.isfinite(table[name])] for name in ("gap_prior", "gap_shuffled")])
        low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
        span = (high - low) or 1.0
        axes.set_ylim(low - 0.06 * span, max(high + 0.1 * span, 1.0))
        axes.set_ylabel("extra nats per sequence")
        name_lines(axes, ends)

    note = "Extra cost of reconstruction from latents of another sequence, or of the prior; near 0, they are ignored."
    return Plot("posterior_gaps", "Reconstruction with wrong latents", note + _shaded(posterior), draw)


def shade_alarms(axes: Any, posterior: Posterior, *, named: bool = False) -> None:
    """Shade the steps in which an alarm was active; `named`: and write its name at the top."""
    for span in posterior.spans:
        axes.axvspan(span.first, span.last, color=WASH, linewidth=0, zorder=0.1)
        axes.axvline(span.first, color=RUST, linewidth=0.7, alpha=0.5, zorder=0.2)
    if named:
        _name_alarms(axes, posterior)


def _name_alarms(axes: Any, posterior: Posterior) -> None:
    """Write the name of each alarm at the top of its first step, on the side with room, below names that are close."""
    width = axes.get_xlim()[1]
    ends: list[float] = []  # right ends of the names in each line of text, as a share of the width
    for span in posterior.spans[:MAX_NAMES]:
        at, is_late = span.first / width, span.first > 0.7 * width
        begin = at - NAME_WIDTH if is_late else at
        line = next((line for line, end in enumerate(ends) if end <= begin), len(ends))
        ends[line : line + 1] = [begin + NAME_WIDTH]
        axes.annotate(
            KIND_WORDS.get(span.kind, span.kind),
            (span.first, 1),
            (-3 if is_late else 3, -2 - 10 * line),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right" if is_late else "left",
            va="top",
            color=RUST,
            fontsize=7.5,
            zorder=4,
        )


def _shaded(posterior: Posterior) -> str:
    return " Shaded: an alarm was active." if posterior.spans else ""


def _line(
    axes: Any,
    posterior: Posterior,
    name: str,
    words: str,
    colour: str,
    ends: list[End],
    *,
    form: str = "",
    linestyle: Any = "-",
) -> None:
    """Draw a metric as a line; append its end and label to `ends`."""
    x, y = thinned(posterior.table.steps, posterior.table[name])
    if not len(x):
        return
    style = {**stroke(colour, len(x)), "linestyle": linestyle}
    axes.plot(x, y, **({**style, "linewidth": 1.0} if linestyle != "-" else style))
    ends.append((float(x[-1]), float(y[-1]), f"{words} {format(y[-1], form)}" if form else words, colour))
