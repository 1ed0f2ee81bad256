"""`pytest tests/faults/rows --record-rows` writes the outcome of each row to runs.json."""

from __future__ import annotations

import datetime
import json
from collections import Counter

import pytest

import gristmill
from faults.rows.fault import RECORD, read_record, row_of
from gristmill.publish import publish


class RowRecorder:
    """Counts the outcomes of each row. With `-n`, it runs in the process that collects the reports of all workers."""

    def __init__(self) -> None:
        self._outcomes: dict[int, Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = row_of(report.nodeid.partition("::")[0])
        if row is None or (report.when != "call" and report.outcome == "passed"):
            return
        self._outcomes.setdefault(row, Counter())[report.outcome] += 1

    def pytest_sessionfinish(self) -> None:
        record = read_record()
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        for row, outcomes in self._outcomes.items():
            record[str(row)] = {"date": today, "version": gristmill.__version__, **sorted_counts(outcomes)}
        with publish(RECORD) as file:
            ordered = dict(sorted(record.items(), key=lambda item: int(item[0])))
            file.write((json.dumps(ordered, indent=1) + "\n").encode())


def sorted_counts(outcomes: Counter[str]) -> dict[str, int]:
    return {outcome: outcomes[outcome] for outcome in ("passed", "skipped", "failed")}


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("record_rows", default=False) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(RowRecorder())
