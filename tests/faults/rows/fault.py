"""What a file of this folder declares about its row of the table in docs/reliability.md.

One file per row: `test_row_NN_NAME.py` assigns a `Fault` to `FAULT` and injects this fault for real. The names of its
tests begin with `test_row_NN_`. `tools/reliability.py` writes the table from these declarations and from runs.json,
which `pytest --record-rows` writes.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROWS = Path(__file__).resolve().parent
RECORD = ROWS / "runs.json"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One row of the table. The texts are Markdown."""

    row: int
    injected: str
    promise: str
    undetectable: str = ""
    """What no test and no reader can detect, for example a bit flip in a file without checksums."""
    see_also: tuple[str, ...] = ()
    """Other test files about the same fault, as paths from the root of the repository."""


def files_of_rows() -> list[Path]:
    return sorted(ROWS.glob("test_row_*.py"))


def row_of(path: Path | str) -> int | None:
    """Return the row that a test file belongs to, or None.

    >>> row_of("tests/faults/rows/test_row_03_two_members.py")
    3
    """
    name = Path(path).name
    return int(name.split("_")[2]) if name.startswith("test_row_") else None


def read_faults() -> dict[Path, Fault]:
    """Return the declaration of each file, in the order of the rows."""
    tests = str(ROWS.parents[1])
    if tests not in sys.path:
        sys.path.append(tests)
    faults = {path: importlib.import_module(f"faults.rows.{path.stem}").FAULT for path in files_of_rows()}
    return dict(sorted(faults.items(), key=lambda item: item[1].row))


def read_record() -> dict[str, Any]:
    """Return the last run of each row: its date, version and number of tests."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
