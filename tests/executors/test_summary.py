"""Statistics of tasks, per machine and per stage."""

from __future__ import annotations

import pytest

from gristmill.executors.summary import figures_by_node, figures_by_stage
from gristmill.profile import TaskTime


def task(stage, number, node="a", worker="1", seconds=1.0, num_bytes=100, attempts=1, is_reused=False, peak=None):
    return TaskTime(
        stage=stage,
        number=number,
        node=node,
        worker=worker,
        seconds=seconds,
        num_bytes=num_bytes,
        attempts=attempts,
        is_reused=is_reused,
        peak_memory_bytes=peak,
    )


TASKS = [
    task("count", 0, "b", "7", seconds=2.0, peak=50),
    task("count", 1, "a", "7", seconds=4.0, attempts=3, peak=90),
    task("count", 2, "a", "8", seconds=1.0),
    task("count", 3, "a", "9", seconds=0.001, is_reused=True),
    task("merge", 0, "a", "8", seconds=6.0, num_bytes=10**9),
]


def test_each_machine_has_a_row_and_bytes_are_those_of_the_inputs():
    a, b = figures_by_node(TASKS)
    assert (a.node, a.num_workers, a.num_tasks, a.num_bytes) == ("a", 2, 3, 200)
    assert (a.busy_seconds, a.bytes_per_second) == (11.0, 40.0)
    assert (a.num_retries, a.num_reused, a.peak_memory_bytes) == (2, 1, 90)
    assert a.slowest == TASKS[4]
    assert (b.node, b.num_workers, b.num_tasks, b.bytes_per_second) == ("b", 1, 1, 50.0)


def test_workers_of_two_machines_with_the_same_number_are_two():
    assert [row.num_workers for row in figures_by_node(TASKS[:2])] == [1, 1]


def test_a_machine_that_only_found_finished_tasks_has_no_times():
    (row,) = figures_by_node([TASKS[3]])
    assert (row.num_tasks, row.num_reused, row.bytes_per_second) == (0, 1, 0.0)
    assert (row.slowest, row.peak_memory_bytes) == (None, None)


def test_each_stage_has_its_shortest_median_and_longest_time_and_the_slowest_tasks():
    tasks = [task("encode", number, seconds=float(seconds)) for number, seconds in enumerate([3, 9, 1, 7, 5])]
    count, merge, encode = figures_by_stage([*TASKS, *tasks])
    assert [row.stage for row in (count, merge, encode)] == ["count", "merge", "encode"]
    assert (encode.num_tasks, encode.min_seconds, encode.median_seconds, encode.max_seconds) == (5, 1.0, 5.0, 9.0)
    assert [slow.number for slow in encode.slowest] == [1, 3, 4]
    assert (count.num_tasks, count.num_reused, count.min_seconds) == (3, 1, 1.0)
    assert count.busy_seconds == pytest.approx(7.0)


def test_a_stage_whose_tasks_were_all_reused_took_no_time():
    (row,) = figures_by_stage([TASKS[3]])
    assert (row.num_tasks, row.num_reused, row.max_seconds, row.slowest) == (0, 1, 0.0, ())


def test_no_tasks_give_no_rows():
    assert figures_by_node([]) == figures_by_stage([]) == []
