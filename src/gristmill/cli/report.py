"""gristmill report: write an HTML report of a training run, or compare runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from gristmill.cli.examples import Examples
from gristmill.cli.options import Flag, UsageError, check_output
from gristmill.cli.table import pairs
from gristmill.packages import require_packages


@dataclass(frozen=True, kw_only=True)
class Command:
    """Write the report of a training run, finished or not, or compare several runs.

    One run: writes report.html (self-contained), report.md (a summary) and plots/ (the curves as PNG files) to its
    folder. Two or more runs: writes one page with overlaid curves, final metrics and the options that differ.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Write report.html, report.md and plots into the folder of the run.", "gristmill report run"),
        ("Compare two runs on one page.", "gristmill report run-a run-b -o comparison.html"),
    )

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…", help_behavior_hint="")]
    """Run folder of `gristmill train-model`. Pass two or more to compare them."""

    output: Annotated[
        Path | None,
        tyro.conf.arg(aliases=["-o"], metavar="FILE", help_behavior_hint="(default: comparison.html)"),
    ] = None
    """HTML file to write when comparing runs."""

    overwrite: Flag = False
    """Replace an existing comparison."""

    def run(self) -> int:
        require_packages("gristmill report", "matplotlib", "jinja2")
        if not self.runs:
            raise UsageError("no run given. Pass a run folder of `gristmill train-model`.")
        return self._report(self.runs[0]) if len(self.runs) == 1 else self._compare()

    def _report(self, run: Path) -> int:
        from gristmill.report import write_report

        if self.output is not None:
            raise UsageError("-o needs two or more runs. The report of one run is written to its folder. Omit -o.")
        page = write_report(run)
        plots = sorted((page.parent / "plots").glob("*.png"))
        rows = [("page", str(page)), ("summary", str(page.with_suffix(".md")))]
        if plots:
            rows.append(("plots", f"{len(plots)} in {plots[0].parent}"))
        print(pairs(rows))
        return 0

    def _compare(self) -> int:
        from gristmill.report import write_comparison
        from gristmill.report.writing import COMPARISON_FILE

        output = self.output or Path(COMPARISON_FILE)
        check_output(output, overwrite=self.overwrite)
        page = write_comparison(self.runs, out=output, overwrite=self.overwrite)
        print(pairs([("page", str(page)), ("runs", f"{len(self.runs)}")]))
        return 0
