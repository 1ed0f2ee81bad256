"""Draw: `python -m gristmill.posterior.draw FOLDER` draws FOLDER/posterior.png from FOLDER/posterior.jsonl.

The monitor runs it in a separate process.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

from gristmill.posterior.drawing import FIGURES_FILE, NO_MATPLOTLIB, PICTURE_FILE, read_figures
from gristmill.publish import publish
from gristmill.report.drawing import GREY, INK, NARROW, PNG_DOTS_PER_INCH, RUST, STYLE, Plot, steps_below
from gristmill.report.posterior import KIND_WORDS, posterior_plots
from gristmill.report.records import Posterior, posterior_of

SIZE = (11.5, 7.6)  # inches


def picture(posterior: Posterior) -> bytes:
    """Return a PNG of all metrics of the posterior over the steps."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1, hspace=0.04, wspace=0.04, rect=(0, 0, 1, 0.925))
        _write_title(figure, posterior)
        plots = posterior_plots(posterior)
        # Neighbours take the space of missing plots.
        places = {1: ["0"], 2: ["01"], 3: ["01", "22"], 4: ["01", "23"]}[max(1, len(plots))]
        axes_of = figure.subplot_mosaic("\n".join(places))
        for place, plot in enumerate(plots):
            _draw(axes_of[str(place)], plot, posterior)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=PNG_DOTS_PER_INCH, metadata={"Software": None})
        return buffer.getvalue()


def _draw(axes: Any, plot: Plot, posterior: Posterior) -> None:
    axes.set_title(plot.title, pad=10)
    axes.set_xlabel("step")
    steps_below(axes, int(posterior.table.steps[-1]), NARROW)
    plot.draw(axes)


def _write_title(figure: Any, posterior: Posterior) -> None:
    steps = posterior.table.steps
    words = f"Posterior at step {int(steps[-1]):,}" if len(steps) else "Posterior: no measurements yet"
    figure.text(0.012, 0.975, words, fontsize=14, fontweight="bold", color=INK, va="center")
    is_on = [span for span in posterior.spans if not span.is_over]
    if is_on:
        alarms = " · ".join(f"{KIND_WORDS.get(span.kind, span.kind)} since step {span.first:,}" for span in is_on)
        figure.text(0.012, 0.942, f"Alarm: {alarms}", fontsize=10, color=RUST, va="center")
    elif len(steps):
        over = f"; {len(posterior.spans)} earlier, shaded" if posterior.spans else ""
        figure.text(0.012, 0.942, f"No active alarm{over}", fontsize=10, color=GREY, va="center")


def main(folder: Path) -> int:
    """Draw the plot; return the exit status."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return NO_MATPLOTLIB
    figures = folder / FIGURES_FILE
    drawn = figures.stat().st_mtime_ns if figures.exists() else 0
    content = picture(posterior_of(list(read_figures(figures))))
    with publish(folder / PICTURE_FILE) as file:
        file.write(content)
    # The time of what the plot shows, because figures may have been added meanwhile. See `Drawing.resume_after`.
    os.utime(folder / PICTURE_FILE, ns=(drawn, drawn))
    return 0


if __name__ == "__main__":
    with contextlib.suppress(AttributeError, OSError):  # training has priority
        os.nice(10)
    sys.exit(main(Path(sys.argv[1])))
