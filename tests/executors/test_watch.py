"""What a watch reports about the tasks of a job, and what progress bars and JSON lines show."""

from __future__ import annotations

import json
import time

import pytest

from gristmill.executors import watch as watch_module
from gristmill.executors.calls import Call, Outcome
from gristmill.executors.done import Done
from gristmill.executors.watch import Watch
from gristmill.progress import open_progress


def call(number, stage="count"):
    return Call(stage, "gristmill.count.tasks:count_part", "work", number, 100)


def outcome(number, *, is_reused=False, stage="count", seconds=2.0):
    return Outcome(call(number, stage), Done(), "node-1", "77", seconds, is_reused, 123)


@pytest.fixture
def every_report(monkeypatch):
    monkeypatch.setattr(watch_module, "REPORT_SECONDS", 0.0)


def test_a_report_has_parts_retries_and_what_an_earlier_run_had_done(every_report):
    reports = []
    with open_progress(reports.append) as on_progress:
        watch = Watch(on_progress)
        watch.begin([call(number) for number in range(4)])
        watch.tick()
        watch.done(outcome(0, is_reused=True), 1)
        watch.retried()
        watch.copied()
        watch.done(outcome(1), 2)
        watch.tick()
    assert (reports[0].stage, reports[0].done, reports[0].total, reports[0].unit) == ("count", 0, 400, "bytes")
    last = reports[-1]
    assert (last.done, last.initial, last.parts, last.num_parts) == (200, 100, 2, 4)
    assert (last.retries, last.reused, last.copies) == (1, 1, 1)
    assert last.rate == pytest.approx(100 / last.seconds)  # reused tasks took no time


def test_the_merging_of_runs_is_not_taken_for_the_merging_of_pairs(every_report):
    reports = []
    with open_progress(reports.append) as on_progress:
        watch = Watch(on_progress)
        watch.begin([call(0, "merge")])
        watch.done(outcome(0, stage="merge"), 1)
        watch.tick()
    assert (reports[-1].stage, reports[-1].unit) == ("join", "bytes")


def test_ten_thousand_parts_that_are_reused_are_not_ten_thousand_reports_but_the_last_is_one(monkeypatch):
    monkeypatch.setattr(watch_module, "REPORT_SECONDS", 1e9)
    reports = []
    with open_progress(reports.append) as on_progress:
        watch = Watch(on_progress)
        watch.begin([call(number) for number in range(100)])
        for number in range(100):
            watch.done(outcome(number, is_reused=True), 1)
            watch.tick()
    assert [report.parts for report in reports] == [1, 100]
    assert watch.num_reused == 100


def test_a_task_that_this_run_did_and_finds_done_later_keeps_its_time():
    watch = Watch(None)
    watch.begin([call(0)])
    watch.done(outcome(0, seconds=5.0), 1)
    watch.done(outcome(0, seconds=0.1, is_reused=True), 1)
    (task,) = watch.tasks
    assert (task.seconds, task.is_reused, task.attempts, task.peak_memory_bytes) == (5.0, False, 1, 123)
    watch.done(outcome(0, seconds=6.0), 2)  # its files were damaged
    (task,) = watch.tasks
    assert (task.seconds, task.attempts) == (6.0, 3)
    assert watch.num_reused == 0


def test_json_lines_have_the_parts(every_report, capsys):
    with open_progress("jsonl") as on_progress:
        watch = Watch(on_progress)
        watch.begin([call(0), call(1)])
        watch.done(outcome(0), 1)
        watch.tick()
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert {name: line[name] for name in ("parts", "num_parts", "retries", "reused", "copies")} == {
        "parts": 1,
        "num_parts": 2,
        "retries": 0,
        "reused": 0,
        "copies": 0,
    }


def test_a_bar_shows_parts_and_what_happened_to_them(every_report, capsys):
    with open_progress("bar") as on_progress:
        watch = Watch(on_progress)
        watch.begin([call(number) for number in range(3)])
        watch.tick()
        time.sleep(0.06)  # a bar is drawn at most every 0.05 s
        watch.tick()
        quiet = capsys.readouterr().err
        watch.done(outcome(0, is_reused=True), 1)
        watch.retried()
        watch.done(outcome(1), 2)
        watch.done(outcome(2), 1)
        watch.tick()
    shown = capsys.readouterr().err
    assert "parts 0/3" in quiet
    assert not any(word in quiet for word in ("reused", "retried", "slow"))
    assert "parts 3/3, 1 reused, 1 retried, CPU" in shown
    assert "slow" not in shown
