"""The page of a result: printed, then written as Markdown, JSON and SVG."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gristmill.bench.tables import write_result
from gristmill.bench.terminal import for_terminal

__all__ = ["Page", "chart_caption", "plural", "publish_page", "short"]


@dataclass(frozen=True)
class Page:
    """The contents of a result."""

    name: str  # of the files, without suffix
    title: str
    about: Mapping[str, str]
    parts: Sequence[str]  # paragraphs and tables in Markdown; empty ones are left out
    data: Mapping[str, object]
    chart: str | None = None
    more_charts: Mapping[str, str] = field(default_factory=dict)  # by the end of their names


def publish_page(page: Page, folder: Path, *, is_interrupted: bool = False) -> Path:
    """Print the page, as Markdown unless stdout is a terminal, then write its files.

    An interrupted result is marked in all of them.

    Raises:
        OSError: A file cannot be written. The tables have been printed by then.
    """
    title = f"{page.title} (interrupted)" if is_interrupted else page.title
    note = ["Interrupted: some runs are missing."] if is_interrupted else []
    body = "\n\n".join(filter(None, [*note, *page.parts]))
    shown = for_terminal(body, shutil.get_terminal_size().columns) if sys.stdout.isatty() else body
    print(f"{title}\n\n{shown}\n", flush=True)
    written = write_result(
        page.name,
        title=title,
        about=page.about,
        body=body,
        data={"interrupted": is_interrupted, **page.data},
        folder=folder,
        chart=page.chart,
        more_charts=page.more_charts,
    )
    kinds = "Markdown and JSON" if page.chart is None else "Markdown, JSON and SVG"
    print(f"written: {written} ({kinds})", file=sys.stderr)
    return written


def chart_caption(about: Mapping[str, str]) -> str:
    """Return the conditions of a measurement, for the foot of a chart."""
    return (
        f"Median of fresh processes in alternation, lines from minimum to maximum; systems with the same output only. "
        f"{about['CPU']}, {plural(int(about['cores']), 'core')}; {about['versions']}; {about['date']}."
    )


def short(number: float) -> str:
    """Return a number with about three digits, for the end of a bar.

    >>> short(0.3219), short(12.345), short(1234.5)
    ('0.322', '12.3', '1,234')
    """
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def plural(number: int, word: str) -> str:
    """Return a number with its noun.

    >>> plural(1, "thread"), plural(2, "thread")
    ('1 thread', '2 threads')
    """
    return f"{number:,} {word}{'s' * (number != 1)}"
