"""Writing: the report of a run, beside what it was made from."""

from __future__ import annotations

import os
from pathlib import Path

from gristmill.packages import require_packages
from gristmill.publish import publish
from gristmill.report.drawing import NARROW, WIDE, render
from gristmill.report.page import html_page, markdown_page
from gristmill.report.plots import all_plots
from gristmill.report.records import read_records
from gristmill.report.summary import summarise

HTML_FILE = "report.html"
MARKDOWN_FILE = "report.md"
PLOT_FOLDER = "plots"


def write_report(run_folder: str | os.PathLike[str]) -> Path:
    """Write report.html, report.md and plots/*.png into the folder of a run; return the path of the page.

    Only recorded files are read: no model, no shards, no torch. A run that is not finished has a report, too. The same
    records give the same bytes.
    """
    require_packages("gm.report.write_report", "matplotlib", "jinja2")
    folder = Path(run_folder)
    records = read_records(folder)
    summary, plots = summarise(records), all_plots(records)
    (folder / PLOT_FOLDER).mkdir(exist_ok=True)
    for plot in plots:
        _write(folder / PLOT_FOLDER / f"{plot.name}.png", render(plot, "png", WIDE if plot.wide else NARROW))
    _write(folder / MARKDOWN_FILE, markdown_page(summary, plots, PLOT_FOLDER).encode())
    _write(folder / HTML_FILE, html_page(summary, plots).encode())
    return folder / HTML_FILE


def _write(path: Path, content: bytes) -> None:
    with publish(path) as file:
        file.write(content)
