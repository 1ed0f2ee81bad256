"""Page: the summary and the plots as one self-contained HTML page, and as Markdown."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gristmill.report.comparison import Comparison
from gristmill.report.drawing import NARROW, WIDE, Plot, render
from gristmill.report.records import Sample
from gristmill.report.summary import Summary

TEMPLATE = "page.html"
COMPARISON_TEMPLATE = "comparison.html"


@dataclass(frozen=True)
class Picture:
    """A plot embedded in the page: a narrow version for phones and columns, and a wide one for full width."""

    title: str
    across: str
    note: str
    narrow: str
    wide: str | None


def html_page(summary: Summary, plots: Sequence[Plot]) -> str:
    """Return the HTML page of a run, with all plots embedded."""
    return filled(TEMPLATE, summary=summary, pictures=[picture_of(plot) for plot in plots])


def comparison_page(comparison: Comparison, plots: Sequence[Plot]) -> str:
    """Return the HTML page of several runs, with all plots embedded."""
    return filled(COMPARISON_TEMPLATE, comparison=comparison, pictures=[picture_of(plot) for plot in plots])


def filled(template: str, **content: object) -> str:
    """Return a template of this folder, filled with `content`."""
    import jinja2

    from gristmill.version import __version__

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # a model may generate anything, including markup
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    page: str = environment.get_template(template).render(**content, version=__version__)
    return page


def picture_of(plot: Plot) -> Picture:
    """Return the plot as embedded pictures."""
    wide = _data_url(render(plot, "svg", WIDE)) if plot.wide else None
    return Picture(plot.title, plot.across, plot.note, _data_url(render(plot, "svg", NARROW)), wide)


def _data_url(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode('ascii')}"


def markdown_page(summary: Summary, plots: Sequence[Plot], plot_folder: str) -> str:
    """Return the same as Markdown, with links to the PNG files."""
    sections = [f"# {_escaped(summary.title)}", summary.result]
    if summary.trouble:
        sections.append(f"**{summary.trouble}**")
    if summary.figures:
        sections.append(_table(("metric", "value", ""), [(f.name, f.value, f.note) for f in summary.figures]))
    sections += [f"![{_escaped(plot.title)} by step]({plot_folder}/{plot.name}.png)" for plot in plots]
    if summary.samples:
        sections += ["## Samples", *map(_sample, summary.samples)]
    for title, rows in (("Configuration", summary.config), ("Machine", summary.machine)):
        if rows:
            sections += [f"## {title}", _table(("name", "value"), rows)]
    if summary.events:
        rows = [(f"{event.step:,}", event.message) for event in summary.events]
        sections += ["## Events", _table(("step", ""), rows)]
    return "\n\n".join(sections) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _sample(sample: Sample) -> str:
    text = sample.prompt + sample.text
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)  # longer than any fence in the text
    return f"Step {sample.step:,}:\n{fence}text\n{text}\n{fence}"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split()))
