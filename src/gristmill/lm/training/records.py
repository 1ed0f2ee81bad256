"""Records: metrics.jsonl of a run. Reports and plots are made from it.

metrics.jsonl has one JSON object per line, with "kind" and "step". A resumed run first drops the records of steps after
its checkpoint, because it computes and records these steps again.
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
    """metrics.jsonl of a run, open for appending."""

    def __init__(self, run: Path, *, up_to_step: int = -1) -> None:
        """Open the file, and drop records of steps after `up_to_step`."""
        path = run / METRICS_FILE
        kept = [record for record in read_records(run) if record["step"] <= up_to_step]
        with publish(path) as file:
            file.writelines(json_line(record) for record in kept)
        self._file = path.open("ab")

    def add(self, record: Record) -> None:
        """Append a record. Readers of the file see it immediately."""
        self._file.write(json_line(record))
        self._file.flush()

    def flush(self) -> None:
        """Flush all records to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()


def json_line(record: Record) -> bytes:
    """Return a record as a line of metrics.jsonl, with null for NaN and infinity."""
    # JSON has no NaN or infinity, and every reader understands null.
    plain = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }
    try:
        line = json.dumps(plain, allow_nan=False)
    except ValueError:  # a list or object of an edited file contains such a number
        line = json.dumps(json.loads(json.dumps(plain), parse_constant=lambda name: None))
    return line.encode() + b"\n"


def read_records(run: Path) -> list[Record]:
    """Return the records of a run. Skips incomplete lines of an interrupted process."""
    path = run / METRICS_FILE
    if not path.exists():
        return []
    records = read_json_lines(
        path, what="the record of a run", max_bytes=MAX_METRICS_BYTES, error=CheckpointError, skip_damaged=True
    )
    return [record for record in records if isinstance(record.get("step"), int)]
