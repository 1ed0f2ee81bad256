"""Read the tables that the benchmarks print, and watch their processes."""

from pathlib import Path


def rows_of(table):
    """Return the rows of the first Markdown table of a text, by their first cell without marks."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    end = next((i for i, line in enumerate(lines[2:], 2) if line.startswith("|:") or ":|" in line), len(lines) + 1)
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[: end - 1]]
    return {row[0].rstrip("†‡§*"): dict(zip(header, row, strict=True)) for row in rows}


def is_alive(pid):
    """Return whether the process runs; one that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
