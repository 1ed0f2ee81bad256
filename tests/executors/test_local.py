"""Threads that run calls, and the checks of options that all executors share."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from gristmill_chores import attempts, chores

import gristmill as gm
from gristmill.executors import EXECUTORS, check_executor, executor_class
from gristmill.executors.driver import run_calls
from gristmill.executors.watch import Watch


def run(calls, num_workers=2, watch=None):
    with gm.Local(num_workers=num_workers).open() as workers:
        return run_calls(workers, calls, watch or Watch(None))


def test_results_are_in_the_order_of_the_calls(tmp_path):
    outcomes = run(chores(tmp_path, *[{}] * 5))
    assert [outcome.done.result["square"] for outcome in outcomes] == [0, 1, 4, 9, 16]
    assert {outcome.worker for outcome in outcomes} <= {"gristmill-task-0", "gristmill-task-1"}


def test_what_is_done_is_not_done_again_but_reused_and_counted(tmp_path):
    calls = chores(tmp_path, *[{}] * 4)
    first = run(calls[:3])
    watch = Watch(None)
    second = run(calls, watch=watch)
    assert [outcome.is_reused for outcome in second] == [True, True, True, False]
    assert [outcome.done for outcome in second[:3]] == [outcome.done for outcome in first]
    assert [len(attempts(tmp_path, number)) for number in range(4)] == [1] * 4
    assert watch.num_reused == 3


@pytest.mark.parametrize("content", ["", "{", '{"content": "{}", "xxh64": "0"}'])
def test_a_task_with_a_damaged_ok_file_runs_again(tmp_path, content):
    calls = chores(tmp_path, {}, {})
    run(calls)
    (tmp_path / "count-00001.ok").write_text(content)
    assert [outcome.is_reused for outcome in run(calls)] == [True, False]


def test_the_error_of_a_task_ends_those_that_run_at_their_next_step(tmp_path):
    with pytest.raises(gm.CorruptInputError, match=r"a\.zst"):
        run(chores(tmp_path, {"steps": 10**6}, {"raise": "corrupt"}))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gristmill-task")]
    assert not (tmp_path / "count-00000.ok").exists()


def test_a_cancelled_task_is_not_declared_done(tmp_path):
    (call,) = chores(tmp_path, {"steps": 20, "is_deaf": True})
    with gm.Local(num_workers=1).open() as workers:
        ticket = workers.submit(call)
        while not attempts(tmp_path, 0):
            workers.wait(0.01)
        workers.cancel(ticket)
    assert not (tmp_path / "count-00000.ok").exists()


@pytest.mark.parametrize("name", ["local", "processes"])
def test_an_executor_is_known_by_its_name(name):
    executor = check_executor(name)
    assert executor.name == name
    assert check_executor(executor) is executor
    assert executor_class(name) is type(executor)
    assert name in EXECUTORS


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (
            "procesess",
            r"executor='procesess' is not known. Did you mean 'processes'\? Pass one of 'local', 'processes'",
        ),
        (3, r"executor=3 is a int. Pass one of 'local'"),
        (None, r"executor=None is a NoneType"),
        (gm.Processes, r"executor=Processes is a class. Pass one of its objects: Processes\(\)"),
    ],
)
def test_an_unknown_executor_is_refused_with_the_known_ones(executor, message):
    with pytest.raises(gm.OptionError, match=message):
        check_executor(executor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": 0}, r"num_workers must be 1 to 100,000, got 0. Leave it out"),
        ({"num_workers": -2}, r"num_workers must be .*, got -2"),
        ({"num_workers": 10**6}, r"num_workers must be .*, got 1000000"),
        ({"num_workers": "2"}, r"num_workers='2' is a str. Pass an int"),
        ({"num_workers": True}, r"num_workers=True is a bool. Pass an int"),
        ({"part_bytes": 0}, r"part_bytes must be >= 1, got 0"),
        ({"part_bytes": 1.5}, r"part_bytes=1.5 is a float. Pass an int"),
        ({"work_folder": 3}, r"work_folder=3 is a int. Pass a path or a URL"),
        ({"work_folder": ""}, r"work_folder='' is not a folder name"),
        ({"work_folder": "s3://"}, r"work_folder='s3://' is not a folder name. Pass a path, or a URL without spaces"),
        ({"work_folder": "file:///"}, r"work_folder='file:///' is not a folder name"),
        ({"work_folder": "s3://my bucket/work"}, r"work_folder='s3://my bucket/work' is not a folder name"),
        ({"work_folder": "a\0b"}, r"work_folder='a\\x00b' has a character that file names cannot have"),
        ({"work_folder": "a\ud800"}, r"work_folder='a\\ud800' has a character that file names cannot have"),
        ({"work_folder": b"work"}, r"work_folder=b'work' is a bytes"),
    ],
)
@pytest.mark.parametrize("kind", [gm.Local, gm.Processes])
def test_options_are_checked_when_the_executor_is_made(kind, options, message):
    with pytest.raises(gm.OptionError, match=message):
        kind(**options)


def test_a_work_folder_may_be_a_path():
    assert gm.Local(work_folder=Path("work") / "here").work_folder == str(Path("work") / "here")
    assert gm.Processes(work_folder="s3://bucket/work").work_folder == "s3://bucket/work"
