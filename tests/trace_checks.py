"""Reads a trace and checks it against the trace-event format, as the tests of several stages do."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

METADATA = {"process_name": str, "thread_name": str, "thread_sort_index": int}


class ReadTrace:
    """The spans of a valid trace, by the names of their process and thread."""

    def __init__(self, path: Path) -> None:
        self.content = json.loads(path.read_text())
        self.events: list[dict[str, Any]] = self.content["traceEvents"]
        self.processes = {e["pid"]: e["args"]["name"] for e in self.events if e["name"] == "process_name"}
        threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in self.events if e["name"] == "thread_name"}
        self.rows: dict[tuple[str, str], list[dict[str, Any]]] = {
            (self.processes[pid], name): [] for (pid, _), name in threads.items()
        }
        assert len(self.rows) == len(threads), "two threads have the same name"
        self.memory = [e for e in self.events if e["ph"] == "C"]
        for event in self.events:
            check_event(event)
            if event["ph"] == "X":
                self.rows[self.processes[event["pid"]], threads[event["pid"], event["tid"]]].append(event)
        for row in self.rows.values():
            check_nesting(row)

    def threads(self) -> set[str]:
        """Return the names of the threads of this process."""
        return {thread for process, thread in self.rows if process == "gristmill"}

    def spans(self, name: str, thread: str | None = None) -> list[dict[str, Any]]:
        """Return the spans with this name, of one thread or of all."""
        return [
            span
            for (_, row), spans in self.rows.items()
            for span in spans
            if span["name"] == name and thread in (None, row)
        ]

    def names(self) -> dict[str, set[str]]:
        """Return the names of the spans of each thread of this process."""
        found = defaultdict(set)
        for (process, thread), spans in self.rows.items():
            if process == "gristmill":
                found[thread] |= {span["name"] for span in spans}
        return dict(found)


def check_event(event: dict[str, Any]) -> None:
    assert isinstance(event["name"], str) and event["name"]
    assert type(event["pid"]) is int and type(event["tid"]) is int
    match event["ph"]:
        case "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
        case "M":
            (value,) = event["args"].values()
            assert isinstance(value, METADATA[event["name"]])
        case "C":
            assert event["ts"] >= 0 and all(isinstance(value, int | float) for value in event["args"].values())
        case other:
            raise AssertionError(f"an event of the kind {other!r}")


def check_nesting(row: list[dict[str, Any]]) -> None:
    """Check that each span is inside the one that is open when it begins. Times are whole nanoseconds."""
    open_ends: list[int] = []
    last_begin = 0
    for span in row:
        begin, end = round(span["ts"] * 1000), round((span["ts"] + span["dur"]) * 1000)
        assert begin >= last_begin, "the spans of a thread are not in order"
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1], span
        open_ends.append(end)
        last_begin = begin
