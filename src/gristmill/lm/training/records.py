"""Records: metrics.jsonl, the record of a run; everything else that shows a run is made from it.

metrics.jsonl holds one JSON object per line, with "kind" and "step". A resumed run first drops the records of steps
beyond its checkpoint: the resumed steps write them again.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from gristmill.errors import CheckpointError
from gristmill.publish import publish
from gristmill.report.records import MAX_METRICS_BYTES, METRICS_FILE
from gristmill.small_files import read_json_lines

__all__ = ["METRICS_FILE", "MetricsFile", "Record", "json_line", "read_records"]

Record = dict[str, Any]


class MetricsFile:
    """metrics.jsonl of a run, to which records are added."""

    def __init__(self, run: Path, *, up_to_step: int = -1) -> None:
        """Open it, without the records of steps beyond `up_to_step`."""
        path = run / METRICS_FILE
        kept = [record for record in read_records(run) if record["step"] <= up_to_step]
        with publish(path) as file:
            file.writelines(json_line(record) for record in kept)
        self._file = path.open("ab")

    def add(self, record: Record) -> None:
        """Add a record; whoever follows the file sees it at once."""
        self._file.write(json_line(record))
        self._file.flush()

    def flush(self) -> None:
        """Return when all records are on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()


def json_line(record: Record) -> bytes:
    """A record as metrics.jsonl holds it, with null for what is not a number."""
    # JSON has no NaN; null is what every reader understands.
    plain = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }
    return json.dumps(plain, allow_nan=False).encode() + b"\n"


def read_records(run: Path) -> list[Record]:
    """The records of a run. Lines that an interrupted process did not finish are left out."""
    path = run / METRICS_FILE
    if not path.exists():
        return []
    records = read_json_lines(
        path, what="the record of a run", max_bytes=MAX_METRICS_BYTES, error=CheckpointError, skip_damaged=True
    )
    return [record for record in records if isinstance(record.get("step"), int)]
