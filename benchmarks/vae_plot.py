"""The bar chart of bench_vae.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

INK, BLUE, GREY = "#292524", "#1d4ed8", "#a8a29e"


def draw_ladder(rates: Mapping[str, float], path: Path) -> None:
    """Draw one bar per rung, in tokens per second, with its gain over the first."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is not installed", file=sys.stderr)
        return
    names, values = list(rates), list(rates.values())
    figure = Figure(figsize=(9, 0.9 + 0.42 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh(range(len(names)), values, color=[GREY, *[BLUE] * (len(names) - 1)], height=0.72)
    axes.set_yticks(range(len(names)), [names[0], *(f"+ {name}" for name in names[1:])], color=INK)
    axes.invert_yaxis()
    for place, value in enumerate(values):
        label = f" {value / 1e3:,.0f}k  ({value / values[0]:.1f}x)"
        axes.text(value, place, label, va="center", ha="left", color=INK, fontsize=9)
    axes.set_xlim(0, 1.18 * max(values))
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    figure.suptitle(
        "Tokens per second without padding, each measure added to those above",
        x=0,
        ha="left",
        fontsize=10,
        fontweight="bold",
        color=INK,
    )
    figure.savefig(path, dpi=140)
