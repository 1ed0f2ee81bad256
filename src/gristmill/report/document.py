"""Document: the parts of a report page that is not about a run, and the page as HTML (document.html).

A page has a head with its main figures, then sections in any order: plots, one or several tables, tokens, splits,
samples, settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gristmill.report.comparison import Cell
from gristmill.report.drawing import Plot
from gristmill.report.page import Picture, filled, picture_of
from gristmill.report.summary import Figure

TEMPLATE = "document.html"


@dataclass(frozen=True)
class Plots:
    """A section of plots."""

    title: str
    plots: Sequence[Plot]
    kind: str = field(default="plots", init=False)


@dataclass(frozen=True)
class Column:
    """Head of a column; the swatch is the line style of a tokenizer in the plots."""

    name: str
    is_text: bool = False  # aligned left
    colour: str = ""
    dash: str = "solid"


@dataclass(frozen=True)
class Table:
    """A section with a table. The first column names the rows."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    kind: str = field(default="table", init=False)


@dataclass(frozen=True)
class Tables:
    """A section of small tables, side by side where the page is wide enough."""

    title: str
    tables: Sequence[Table]
    note: str = ""
    kind: str = field(default="tables", init=False)


@dataclass(frozen=True)
class ShownToken:
    """A token as readable text, with a number or remark."""

    text: str
    note: str = ""


@dataclass(frozen=True)
class TokenGroup:
    """Some tokens of one class."""

    title: str
    note: str
    tokens: Sequence[ShownToken]


@dataclass(frozen=True)
class Tokens:
    """A section of tokens by class."""

    title: str
    groups: Sequence[TokenGroup]
    kind: str = field(default="tokens", init=False)


@dataclass(frozen=True)
class Split:
    """One place of a text, with its tokens by each tokenizer."""

    title: str
    rows: Sequence[tuple[str, Sequence[str]]]  # name of a tokenizer, its tokens


@dataclass(frozen=True)
class Splits:
    """A section of places that tokenizers split differently."""

    title: str
    note: str
    splits: Sequence[Split]
    kind: str = field(default="splits", init=False)


@dataclass(frozen=True)
class Samples:
    """A section of texts."""

    title: str
    samples: Sequence[tuple[str, str]]  # heading, text
    note: str = ""
    kind: str = field(default="samples", init=False)


@dataclass(frozen=True)
class Settings:
    """A section of names and values."""

    title: str
    rows: Sequence[tuple[str, str]]
    kind: str = field(default="settings", init=False)


Section = Plots | Table | Tables | Tokens | Splits | Samples | Settings


@dataclass(frozen=True)
class Document:
    """Everything on a page."""

    kicker: str  # what the page is about, in one or two words
    title: str
    result: str  # one sentence
    figures: Sequence[Figure]
    sections: Sequence[Section]
    footer: str  # what the page was made from
    troubles: Sequence[str] = ()


@dataclass(frozen=True)
class _Pictures:
    title: str
    pictures: Sequence[Picture]
    kind: str = field(default="plots", init=False)


def document_page(document: Document) -> str:
    """Return the page as HTML, with all plots embedded. Sections without content are left out."""
    sections = [_drawn(section) for section in document.sections if _has_content(section)]
    return filled(TEMPLATE, document=document, sections=sections)


def _drawn(section: Section) -> Section | _Pictures:
    if not isinstance(section, Plots):
        return section
    return _Pictures(section.title, [picture_of(plot) for plot in section.plots])


def _has_content(section: Section) -> bool:
    match section:
        case Plots(plots=content) | Tokens(groups=content) | Samples(samples=content) | Splits(splits=content):
            return bool(content)
        case Table(rows=content) | Settings(rows=content) | Tables(tables=content):
            return bool(content)


def full_rows(plots: Sequence[Plot | None]) -> list[Plot]:
    """Return the plots that exist, the first of them wide if their number is odd: two narrow plots share a row."""
    found = [plot for plot in plots if plot is not None]
    return [replace(plot, wide=number == 0 and len(found) % 2 == 1) for number, plot in enumerate(found)]


def cells(values: Sequence[str]) -> list[Cell]:
    """Return a row of plain values."""
    return [Cell(value) for value in values]
