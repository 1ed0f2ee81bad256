"""Writing: the report of a run, into its folder, and the comparison of several runs."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from gristmill.errors import OptionError
from gristmill.packages import require_packages
from gristmill.publish import publish
from gristmill.report.comparison import compare, compared_runs
from gristmill.report.drawing import NARROW, WIDE, render
from gristmill.report.overlays import all_overlays
from gristmill.report.page import comparison_page, html_page, markdown_page
from gristmill.report.plots import all_plots
from gristmill.report.records import read_records
from gristmill.report.summary import summarise

HTML_FILE = "report.html"
MARKDOWN_FILE = "report.md"
PLOT_FOLDER = "plots"
COMPARISON_FILE = "comparison.html"


def write_report(run_folder: str | os.PathLike[str]) -> Path:
    """Write report.html, report.md and plots/*.png into the folder of a run; return the path of the page.

    It reads only recorded files: no model, no shards, no torch. The run need not be finished. The same records give the
    same bytes.

    Args:
        run_folder: The folder of the run.

    Returns:
        The path of report.html.

    Raises:
        CheckpointError: The folder is not the folder of a run, or its records are damaged.
        MissingPackageError: matplotlib or Jinja2 is not installed.
        OSError: A file cannot be read or written.

    Examples:
        ```python
        gm.report.write_report("run")
        ```
    """
    require_packages("gm.report.write_report", "matplotlib", "jinja2")
    folder = Path(run_folder)
    records = read_records(folder)
    summary, plots = summarise(records), all_plots(records)
    _make_plot_folder(folder / PLOT_FOLDER)
    for plot in plots:
        _write(folder / PLOT_FOLDER / f"{plot.name}.png", render(plot, "png", WIDE if plot.wide else NARROW))
    _write(folder / MARKDOWN_FILE, markdown_page(summary, plots, PLOT_FOLDER).encode())
    _write(folder / HTML_FILE, html_page(summary, plots).encode())
    return folder / HTML_FILE


def write_comparison(
    runs: Sequence[str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str] = COMPARISON_FILE,
    overwrite: bool = False,
) -> Path:
    """Write one page that compares runs: their curves overlaid, their final numbers, and the options that differ.

    The runs may have different models and lengths, and need not be finished. It reads only recorded files.

    Args:
        runs: Two or more folders of runs.
        out: The page to write.
        overwrite: Whether to replace an existing file at `out`.

    Returns:
        The path of the page.

    Raises:
        OptionError: There are fewer than two runs, or one is given twice.
        FileExistsError: `out` exists, and `overwrite` is False.
        CheckpointError: A folder is not the folder of a run, or its records are damaged.
        MissingPackageError: matplotlib or Jinja2 is not installed.

    Examples:
        ```python
        gm.report.write_comparison(["run-a", "run-b"], out="comparison.html")
        ```
    """
    require_packages("gm.report.write_comparison", "matplotlib", "jinja2")
    folders = _folders(runs)
    with publish(out, overwrite=overwrite) as file:  # first, because it refuses to replace an existing file
        compared = compared_runs(folders, [read_records(folder) for folder in folders])
        file.write(comparison_page(compare(compared), all_overlays(compared)).encode())
    return Path(out)


def _folders(runs: Sequence[str | os.PathLike[str]]) -> list[Path]:
    if isinstance(runs, str | os.PathLike):
        raise OptionError(f"runs must be a list of two or more run folders, got the path {os.fspath(runs)!r}.")
    folders = [Path(run) for run in runs]
    if len(folders) < 2:
        raise OptionError(f"runs must have two or more run folders, got {len(folders)}.")
    resolved = [folder.resolve() for folder in folders]
    for folder, place in zip(folders, resolved, strict=True):
        if resolved.count(place) > 1:
            raise OptionError(f"{folder} is given twice. Pass each run once.")
    return folders


def _make_plot_folder(folder: Path) -> None:
    """Create the folder of the plots. A run of someone else may have a link there, to a folder of the user."""
    if folder.is_symlink():
        raise FileExistsError(errno.EEXIST, "Is a symbolic link, which is not followed. Remove it", str(folder))
    folder.mkdir(exist_ok=True)


def _write(path: Path, content: bytes) -> None:
    with publish(path) as file:
        file.write(content)
