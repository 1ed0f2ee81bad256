"""gristmill report: a training run as one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gristmill.cli.table import pairs
from gristmill.packages import require_packages


@dataclass(frozen=True, kw_only=True)
class Command:
    """Make the report of a training run, finished or not, from what it recorded.

    Written into its folder: report.html, one page that needs nothing else; report.md,
    a summary; plots/, the curves as PNG files.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder that `gristmill train-model` wrote to."""

    def run(self) -> int:
        require_packages("gristmill report", "matplotlib", "jinja2")
        from gristmill.report import write_report

        page = write_report(self.run_folder)
        plots = sorted((page.parent / "plots").glob("*.png"))
        rows = [("page", str(page)), ("summary", str(page.with_suffix(".md")))]
        if plots:
            rows.append(("plots", f"{len(plots)} in {plots[0].parent}"))
        print(pairs(rows))
        return 0
