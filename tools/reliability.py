"""Write the table of faults in docs/reliability.md from tests/faults/rows. `make faults` runs these tests first.

Each file of tests/faults/rows declares its row of the table; runs.json has the outcome of its last recorded run.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

from faults.rows.fault import Fault, read_faults, read_record  # noqa: E402

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"
HEADER = ("", "fault", "promise", "not detectable", "tests", "last run")


def table() -> str:
    """Return the table of all rows in Markdown."""
    record = read_record()
    rows = [HEADER, ("---",) * len(HEADER)]
    for path, fault in read_faults().items():
        run = record.get(str(fault.row))
        rows.append(
            (str(fault.row), fault.injected, fault.promise, fault.undetectable, links(path, fault), outcome(run))
        )
    # A bar in a cell, also in code, would begin another cell.
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n" for cells in rows)


def links(path: Path, fault: Fault) -> str:
    paths = [path.relative_to(ROOT), *map(Path, fault.see_also)]
    return ", ".join(f"[{name.stem}]({Path(os.path.relpath(ROOT / name, PAGE.parent)).as_posix()})" for name in paths)


def outcome(run: dict[str, str | int] | None) -> str:
    if run is None:
        return "never"
    parts = [f"{run[name]} {name}" for name in ("passed", "skipped", "failed") if run[name]]
    return f"{run['date']}: {', '.join(parts)}"


def page_with_table(page: str) -> str:
    """Return the page with the table of now between its two markers."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
