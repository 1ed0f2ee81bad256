"""Markdown tables and the files of a result: NAME.md, NAME.json and NAME.svg."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from gristmill.publish import publish

__all__ = ["markdown_table", "middle_and_spread", "prepare_folder", "write_result"]


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


def prepare_folder(folder: Path) -> None:
    """Create the folder of the results and check that it can be written, before hours of measurement are lost."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "Is not a folder. Pass the name of a folder", str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    with publish(folder / ".writable", durable=False) as file:
        file.write(b"ok")
    (folder / ".writable").unlink()


def write_result(
    name: str,
    *,
    title: str,
    about: Mapping[str, str],
    body: str,
    data: Mapping[str, object],
    folder: Path,
    chart: str | None = None,
    more_charts: Mapping[str, str] | None = None,
) -> Path:
    """Write NAME.md for reading, NAME.json with every single run and, with a chart, NAME.svg.

    Each file appears completely or not at all. Files of the same name are replaced.

    Args:
        name: Name of the files, without suffix.
        title: Heading of the page.
        about: Machine, versions, date and command, from `describe_run`.
        body: Markdown below the heading.
        data: Contents of the JSON file besides `title` and `about`.
        folder: Folder to write to; created if it does not exist.
        chart: Text of the SVG file, from `gristmill.bench.charts`; the page shows it below the table.
        more_charts: Further SVG files, by the end of their names: `{"sizes": …}` becomes NAME_sizes.svg.

    Returns:
        The path of NAME.md.

    Raises:
        OSError: A file cannot be written, for example because the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = "\n".join(f"* {key}: {value}" for key, value in about.items())
    charts = {} if chart is None else {".svg": chart}
    charts |= {f"_{end}.svg": text for end, text in (more_charts or {}).items()}
    pictures = "".join(f"\n![{title}]({name}{end})\n" for end in charts)
    content = {"title": title, "about": dict(about), **data}
    texts = {
        ".json": json.dumps(content, indent=1, ensure_ascii=False) + "\n",
        ".md": f"# {title}\n\n{facts}\n\n{body}\n{pictures}",
        **charts,
    }
    for suffix, text in texts.items():
        with publish(folder / f"{name}{suffix}") as file:
            file.write(text.encode())
    return folder / f"{name}.md"
