"""Markdown tables and the files in results/."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).resolve().parent / "results"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table; the first column to the left, the others to the right.

    >>> print(markdown_table(["system", "s"], [["a", "1.5"]]))
    | system |   s |
    |:-------|----:|
    | a      | 1.5 |
    """
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        aligned = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "| " + " | ".join(aligned) + " |"

    rule = "|:" + "-" * (widths[0] + 1) + "|" + "".join("-" * (width + 1) + ":|" for width in widths[1:])
    return "\n".join([line(header), rule, *map(line, rows)])


def middle_and_spread(values: Sequence[float], *, digits: int) -> tuple[str, str]:
    """Return the median and "min–max" as text.

    >>> middle_and_spread([1.0, 2.0, 4.0], digits=1)
    ('2.0', '1.0–4.0')
    """
    return f"{median(values):.{digits}f}", f"{min(values):.{digits}f}–{max(values):.{digits}f}"


def write_result(
    name: str, *, title: str, about: Mapping[str, str], body: str, data: Mapping[str, object], folder: Path = RESULTS
) -> Path:
    """Write NAME.md for reading and NAME.json with every single run; return the path of NAME.md."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = "\n".join(f"* {key}: {value}" for key, value in about.items())
    (folder / f"{name}.json").write_text(
        json.dumps({"title": title, "about": about, **data}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    page = folder / f"{name}.md"
    page.write_text(f"# {title}\n\n{facts}\n\n{body}\n", encoding="utf-8")
    return page
