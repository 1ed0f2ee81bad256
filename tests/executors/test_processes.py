"""Child processes that run calls: those that die are replaced, and none is left over."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gristmill_chores import attempts, chores

import gristmill as gm
from gristmill import progress
from gristmill.executors import driver
from gristmill.executors.driver import run_calls
from gristmill.executors.watch import Watch
from gristmill.executors.work_folder import DamagedPartError
from gristmill.pretokenize.worker_pool import start_process

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@pytest.fixture(autouse=True)
def no_copies(monkeypatch):
    """On a busy machine a worker may take seconds to start; only the test of slow tasks is about them."""
    monkeypatch.setattr(driver, "SLOW_SECONDS", 1e9)


def run(calls, num_workers=2):
    with gm.Processes(num_workers=num_workers).open() as workers:
        return run_calls(workers, calls, Watch(None))


def is_running(process: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split()[0] != b"Z"
    return False


def test_results_are_in_the_order_of_the_calls_and_each_worker_has_one_thread(tmp_path):
    outcomes = run(chores(tmp_path, *[{}] * 5))
    assert [outcome.done.result for outcome in outcomes] == [{"square": n**2, "threads": "1"} for n in range(5)]
    assert len({outcome.worker for outcome in outcomes}) <= 2
    assert all(outcome.peak_memory_bytes > 1e6 for outcome in outcomes)
    assert not progress.running_workers


@on_linux
def test_the_memory_of_a_report_includes_that_of_the_workers(tmp_path):
    reports = []
    (call,) = chores(tmp_path, {"steps": 30})
    with gm.Processes(num_workers=1).open() as workers, progress.open_progress(reports.append) as on_progress:
        (outcome,) = run_calls(workers, [call], Watch(on_progress))
    own = progress.resident_bytes()
    assert max(report.resident_bytes for report in reports) > own + outcome.peak_memory_bytes / 2


def test_a_worker_that_is_killed_in_the_middle_of_a_task_is_replaced_and_the_task_runs_again(tmp_path):
    outcomes = run(chores(tmp_path, {}, {"kill_once": "killed"}, {}))
    assert [outcome.done.result["square"] for outcome in outcomes] == [0, 1, 4]
    first, second = attempts(tmp_path, 1)
    assert first != second


def test_a_task_that_kills_every_worker_is_an_error_with_its_name_and_advice(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "MAX_ATTEMPTS", 2)
    with pytest.raises(gm.WorkerError, match=r"count-00000 .*2 times.*status -9.*num_workers or part_bytes"):
        run(chores(tmp_path, {"kill": True}), num_workers=1)
    assert len(attempts(tmp_path, 0)) == 2


def test_a_worker_that_hangs_is_overtaken_by_a_copy_of_its_task(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "SLOW_SECONDS", 0.5)
    outcomes = run(chores(tmp_path, {}, {"stop_once": "stopped"}, {}, {}))
    assert [outcome.done.result["square"] for outcome in outcomes] == [0, 1, 4, 9]
    stopped, other = attempts(tmp_path, 1)
    assert outcomes[1].worker == str(other)
    assert not is_running(stopped)


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """Return the errors that tasks raised in a worker, by name."""
    folder = tmp_path_factory.mktemp("errors")
    names = ["changed", "corrupt", "empty", "option", "damaged", "full", "missing", "memory", "bug"]
    calls = chores(folder, *[{"raise": name} for name in names])
    found = {}
    with gm.Processes(num_workers=1).open() as workers:
        tickets = {workers.submit(call): name for call, name in zip(calls, names, strict=True)}
        while len(found) < len(names):
            found.update({tickets[finished.ticket]: finished.error for finished in workers.wait(1)})
    return found


@pytest.mark.parametrize(
    ("name", "kind", "attributes"),
    [
        ("changed", gm.InputChangedError, {}),
        ("corrupt", gm.CorruptInputError, {"path": "a.zst", "offset": 17}),
        ("empty", gm.EmptyCorpusError, {}),
        ("option", gm.OptionError, {}),
        ("damaged", DamagedPartError, {"task": "encode-00003"}),
        ("full", OSError, {"errno": 28, "filename": "part-00001"}),
        ("missing", FileNotFoundError, {"errno": 2, "filename": "a.txt"}),
        ("memory", MemoryError, {}),
    ],
)
def test_the_error_of_a_task_is_the_same_as_without_a_process_between(errors, name, kind, attributes):
    from gristmill_chores import ERRORS

    error, expected = errors[name], ERRORS[name]()
    assert type(error) is type(expected) is kind
    assert str(error) == str(expected)
    assert {attribute: getattr(error, attribute) for attribute in attributes} == attributes


def test_any_other_error_of_a_task_is_a_worker_error_that_names_it(errors):
    assert type(errors["bug"]) is gm.WorkerError
    assert "ZeroDivisionError: division by zero" in str(errors["bug"])
    assert "gristmill_chores.py" in "".join(errors["bug"].__notes__)


def test_a_cancelled_call_is_never_named_and_its_worker_is_ended(tmp_path):
    endless, short = chores(tmp_path, {"steps": 10**6}, {})
    with gm.Processes(num_workers=1).open() as workers:
        first, second = workers.submit(endless), workers.submit(short)
        while not attempts(tmp_path, 0):
            assert workers.wait(0.01) == []
        workers.cancel(first)
        finished = []
        while not finished:
            finished = workers.wait(0.1)
        assert [one.ticket for one in finished] == [second]
    assert not is_running(attempts(tmp_path, 0)[0])


def test_a_work_folder_in_the_memory_of_this_process_is_refused(tmp_path):
    with pytest.raises(gm.OptionError, match=r"memory://work is in the memory of this process.*work_folder"):
        gm.Processes(work_folder="memory://work")
    (call,) = chores(tmp_path, {})
    with pytest.raises(gm.OptionError, match="memory://out"):
        run([dataclasses.replace(call, folder="memory://out/.parts")])


def test_a_worker_whose_parent_died_before_it_was_ready_ends_without_a_message(capfd):
    worker = start_process()
    worker.stdin.close()
    worker.stdout.close()
    assert worker.wait() == 0
    progress.running_workers.discard(worker.pid)
    assert capfd.readouterr().err == ""


DRIVER = """
import signal, sys
from pathlib import Path
import gristmill as gm
from gristmill_chores import chores
from gristmill.executors.driver import run_calls
from gristmill.executors.watch import Watch
signal.signal(signal.SIGINT, signal.default_int_handler)
calls = chores(Path(sys.argv[1]), {"steps": 10**6}, {"steps": 10**6})
with gm.Processes(num_workers=2).open() as workers:
    run_calls(workers, calls, Watch(None))
"""


@on_linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "Ctrl-C"])
def test_no_worker_is_left_when_the_driver_is_ended(tmp_path, number):
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (attempts(tmp_path, 0) and attempts(tmp_path, 1)):
            assert parent.poll() is None, parent.stderr.read()
            time.sleep(0.02)
        workers = attempts(tmp_path, 0) + attempts(tmp_path, 1)
        assert all(map(is_running, workers))
        parent.send_signal(number)
        _, errors = parent.communicate(timeout=60)
        assert number == signal.SIGKILL or "KeyboardInterrupt" in errors
        for _ in range(600):
            if not any(map(is_running, workers)):
                return
            time.sleep(0.05)
        pytest.fail("a worker outlived the driver")
    finally:
        parent.kill()
        parent.wait()
        for worker in attempts(tmp_path, 0) + attempts(tmp_path, 1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
