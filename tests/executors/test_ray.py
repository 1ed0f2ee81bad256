"""Calls on the workers of a real Ray cluster: dead workers are replaced, and errors keep their type."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from gristmill_chores import ERRORS, attempts, chores

import gristmill as gm
from gristmill.executors import driver
from gristmill.executors.driver import run_calls
from gristmill.executors.ray_cluster import RayWorkers
from gristmill.executors.watch import Watch

pytest.importorskip("ray")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.json").write_text("{}")
    return tmp_path


def run(calls, num_workers=None):
    watch = Watch(None)
    with gm.Ray(num_workers=num_workers).open() as workers:
        return run_calls(workers, calls, watch), watch


def squares(outcomes):
    return [outcome.done.result["square"] for outcome in outcomes]


def test_results_are_in_the_order_of_the_calls_from_three_nodes_with_one_thread_each(cluster, folder):
    outcomes, _ = run(chores(folder, *[{"steps": 20}] * 9))
    assert squares(outcomes) == [n**2 for n in range(9)]
    assert {outcome.done.result["threads"] for outcome in outcomes} == {"1"}
    assert len({outcome.node for outcome in outcomes}) == 3
    assert all(outcome.node.startswith(f"{socket.gethostname()}/") for outcome in outcomes)


def test_num_workers_limits_the_calls_that_run_at_the_same_time(cluster, folder):
    calls = chores(folder, *[{"steps": 10**6}] * 3)
    with gm.Ray(num_workers=1).open() as workers:
        assert workers.num_workers == 1
        for call in calls:
            workers.submit(call)
        while not attempts(folder, 0):
            assert workers.wait(0.05) == []
        workers.wait(0.5)
        assert not attempts(folder, 1)


def test_a_worker_that_is_killed_in_the_middle_of_a_task_is_replaced_and_the_attempts_are_counted(cluster, folder):
    outcomes, watch = run(chores(folder, {}, {"kill_once": "killed"}, {}))
    assert squares(outcomes) == [0, 1, 4]
    assert {task.number: task.attempts for task in watch.tasks} == {0: 1, 1: 2, 2: 1}
    first, second = attempts(folder, 1)
    assert first != second


def test_a_task_that_kills_every_worker_is_an_error_with_its_name_and_advice(cluster, folder, monkeypatch):
    monkeypatch.setattr(driver, "MAX_ATTEMPTS", 2)
    with pytest.raises(gm.WorkerError, match=r"count-00000 .*2 times.*num_workers or part_bytes"):
        run(chores(folder, {"kill": True}))
    assert len(attempts(folder, 0)) == 2


def test_the_error_of_a_task_is_the_same_as_without_a_cluster_between(cluster, folder):
    names = ["changed", "corrupt", "option", "damaged", "full", "memory", "bug"]
    found = {}
    with gm.Ray().open() as workers:
        tickets = {
            workers.submit(call): name
            for call, name in zip(chores(folder, *[{"raise": name} for name in names]), names, strict=True)
        }
        while len(found) < len(names):
            found.update({tickets[one.ticket]: one for one in workers.wait(1)})
    assert not any(finished.worker_died for finished in found.values())
    bug = found.pop("bug").error
    assert type(bug) is gm.WorkerError
    assert "ZeroDivisionError: division by zero" in str(bug)
    for name, finished in found.items():
        assert finished.node.startswith(f"{socket.gethostname()}/")
        expected = ERRORS[name]()
        assert (type(finished.error), str(finished.error)) == (type(expected), str(expected))
        assert vars(finished.error) == vars(expected)


def test_a_cancelled_call_is_never_named_and_ends(cluster, folder):
    endless, short = chores(folder, {"steps": 10**6}, {})
    with gm.Ray(num_workers=1).open() as workers:
        first, second = workers.submit(endless), workers.submit(short)
        while not attempts(folder, 0):
            assert workers.wait(0.05) == []
        workers.cancel(first)
        finished = []
        while not finished:
            finished = workers.wait(0.5)
        assert [one.ticket for one in finished] == [second]


def test_a_worker_that_hangs_is_overtaken_by_a_copy_of_its_task(cluster, folder, monkeypatch):
    monkeypatch.setattr(driver, "SLOW_SECONDS", 0.5)
    outcomes, _ = run(chores(folder, {}, {"stop_once": "stopped"}, {}))
    try:
        assert squares(outcomes) == [0, 1, 4]
        _, other = attempts(folder, 1)
        assert outcomes[1].worker == str(other)
    finally:
        os.kill(attempts(folder, 1)[0], signal.SIGKILL)


def test_a_folder_that_the_nodes_do_not_see_is_named_with_the_node(cluster, folder):
    (folder / "job.json").unlink()
    with pytest.raises(gm.WorkerError, match=rf"the node {socket.gethostname()}/\w+ cannot access .*{folder}.*shared"):
        run(chores(folder, {}))


def nodes_of(*names):
    return [{"NodeManagerHostname": name, "Alive": name != "dead"} for name in names]


def test_a_temporary_folder_of_this_machine_is_refused_where_the_cluster_has_others():
    here = socket.gethostname()
    ray = SimpleNamespace(remote=lambda **_: lambda task: task, nodes=lambda: nodes_of(here, "n2", "n1"))
    with pytest.raises(
        gm.OptionError, match=r"has other machines \(n1, n2\).*Pass a work_folder that all of them can access"
    ):
        RayWorkers(ray, None).check_on_this_machine()
    ray.nodes = lambda: nodes_of(here, here, "dead")
    RayWorkers(ray, None).check_on_this_machine()


def test_a_worker_without_gristmill_reports_that_with_its_node_and_what_to_install(monkeypatch):
    from ray import cloudpickle

    from gristmill.executors import ray_cluster

    sent = cloudpickle.dumps(ray_cluster._portable_task())
    for name in [name for name in sys.modules if name.partition(".")[0] == "gristmill"]:
        monkeypatch.setitem(sys.modules, name, None)
    answer = cloudpickle.loads(sent)("0.1.0", ())
    assert answer.keys() == {"missing", "node"}
    message = ray_cluster._missing(**{"node": answer["node"], "reason": answer["missing"]})
    assert re.search(rf"node {socket.gethostname()} cannot import .*ModuleNotFoundError.*pip install", message)


def test_another_version_of_gristmill_on_a_worker_is_refused(cluster, folder, monkeypatch):
    monkeypatch.setattr("gristmill.executors.ray_cluster.__version__", "9.9.9")
    with pytest.raises(
        gm.WorkerError, match=rf"node {socket.gethostname()}.* 9\.9\.9 .*the installed version is .*pip install"
    ):
        run(chores(folder, {}))


def test_an_address_beside_a_connection_to_another_cluster_is_refused(cluster):
    with pytest.raises(gm.OptionError, match=r"already connected to the Ray cluster at .*ray\.shutdown"):
        gm.Ray(address="10.1.2.3:6379").open().__enter__()


@pytest.mark.parametrize("address", ["http://head:6379", "head:port", "ray://", "", 6379])
def test_an_invalid_address_is_refused_with_the_valid_forms(address):
    with pytest.raises(gm.OptionError, match=r"address=.* is not the address .*'auto'.*ray://HOST:10001"):
        gm.Ray(address=address)


def test_a_work_folder_in_the_memory_of_this_process_is_refused_with_the_reason():
    with pytest.raises(gm.OptionError, match=r"memory of this process.*shared file system"):
        gm.Ray(work_folder="memory://work")


DRIVER = """
import signal, sys
from pathlib import Path
import gristmill as gm
from gristmill_chores import chores
from gristmill.executors.driver import run_calls
from gristmill.executors.watch import Watch
signal.signal(signal.SIGINT, signal.default_int_handler)
address, folder = sys.argv[1] or None, Path(sys.argv[2])
calls = chores(folder, *[{"steps": int(steps)} for steps in sys.argv[3:]])
before = signal.getsignal(signal.SIGTERM)
with gm.Ray(address=address, num_workers=2).open() as workers:
    outcomes = run_calls(workers, calls, Watch(None))
assert signal.getsignal(signal.SIGTERM) is before
print(sum(outcome.is_reused for outcome in outcomes))
"""


def start_driver(path, address, folder, *steps):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, address, str(folder), *map(str, steps)],
        env={**environment, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_local_cluster_is_silent_and_ends_with_a_driver_that_is_killed_whose_parts_are_reused(python_path, folder):
    parent = start_driver(python_path, "", folder, 0, 10**6, 10**6)
    while not ((folder / "count-00000.ok").exists() and attempts(folder, 1) and attempts(folder, 2)):
        assert parent.poll() is None, parent.stderr.read()
        time.sleep(0.05)
    parent.kill()
    parent.communicate()
    workers = attempts(folder, 1) + attempts(folder, 2)
    deadline = time.monotonic() + 60
    while any(map(is_running, workers)):
        assert time.monotonic() < deadline, "a worker outlived the driver"
        time.sleep(0.05)
    output, errors = start_driver(python_path, "", folder, 0, 0, 0).communicate(timeout=120)
    assert (output, errors) == ("1\n", "")


def test_ctrl_c_ends_the_tasks_of_a_cluster_that_stays(python_path, cluster, folder):
    parent = start_driver(python_path, cluster.address, folder, 10**6, 10**6)
    while not (attempts(folder, 0) and attempts(folder, 1)):
        assert parent.poll() is None, parent.stderr.read()
        time.sleep(0.05)
    parent.send_signal(signal.SIGINT)
    _, errors = parent.communicate(timeout=60)
    assert errors.endswith("KeyboardInterrupt\n")
    outcomes, _ = run(chores(folder, {}, {}, {}))
    assert squares(outcomes) == [0, 1, 4]


def test_an_address_where_nothing_listens_is_an_error_within_seconds():
    with socket.socket() as listener:  # bound and not listening: a port that is certainly free
        listener.bind(("127.0.0.1", 0))
        for address in (f"127.0.0.1:{listener.getsockname()[1]}", f"ray://127.0.0.1:{listener.getsockname()[1]}"):
            code = f"import gristmill as gm; gm.Ray(address={address!r}).open().__enter__()"
            answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=25)
            assert "WorkerError: address=" in answer.stderr
            assert "no Ray cluster can be reached at 127.0.0.1" in answer.stderr


def test_without_the_package_the_error_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(gm.MissingPackageError, match=r"pip install 'gristmill\[ray\]'"):
        gm.Ray().open().__enter__()


def test_a_node_that_is_lost_in_the_middle_of_its_task_is_done_without(cluster, folder):
    node = cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
    calls = chores(folder, *[{"until": "go"}] * 4, {})
    with gm.Ray().open() as workers:
        tickets = {workers.submit(call): call.number for call in calls}
        while not all(attempts(folder, number) for number in range(4)):
            assert workers.wait(0.05) == []
        cluster.remove_node(node, allow_graceful=False)
        lost = []
        while not lost:
            lost = [one for one in workers.wait(0.5) if one.outcome is None]
        assert [one.worker_died for one in lost] == [True]
        assert tickets[lost[0].ticket] < 4
        (folder / "go").touch()
        assert squares(run_calls(workers, calls, Watch(None))) == [0, 1, 4, 9, 16]


@pytest.mark.parametrize(("cause", "has_died"), [(KeyboardInterrupt(), True), (TypeError("x"), False)])
def test_an_interrupt_that_was_meant_for_an_earlier_task_is_no_fault_of_the_one_it_ends(cause, has_died):
    from ray import exceptions

    from gristmill.executors.ray_cluster import _has_died

    error = exceptions.RayTaskError("task", "traceback", cause)
    assert _has_died(exceptions, error) is has_died
