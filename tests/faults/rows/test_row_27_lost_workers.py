"""Row 27: a worker, a machine or the driver of a distributed job is killed."""

from __future__ import annotations

import contextlib
import signal

import pytest

from faults.kill_cluster import KillCluster
from faults.kill_inputs import make_inputs
from faults.kill_play import Stage, play, private_folder
from faults.kill_runners import WarmRunner, warm_modules
from faults.kills import SCENARIOS
from faults.rows.fault import Fault

FAULT = Fault(
    row=27,
    injected="SIGKILL of a worker, of a node with all its workers, or of the driver, at random times while "
    "`count-words` and `encode` run on a Ray cluster of three nodes. 8 kills for each of them here, 50 in `make soak`",
    promise="A task whose worker or node dies runs again elsewhere. After the driver dies, the same command reuses "
    "what is done. The output has the bytes of one process, and no worker or part of the job remains",
    undetectable="The head node: Ray loses its jobs with it, and the command ends with an error. Several machines: "
    "here, all nodes are on one",
    see_also=("tests/executors/test_ray.py", "tests/executors/test_ray_jobs.py", "tests/lm/test_lost_processes.py"),
)

NUM_KILLS = 8
SHORT_FORM = {"num_kills": NUM_KILLS, "num_undisturbed": 1, "share_finished": 0.3}
ON_CLUSTER = [one for one in SCENARIOS if one.short and one.on_cluster]


def test_row_27_workers_nodes_and_drivers_that_are_killed_change_no_byte():
    pytest.importorskip("ray")
    pytest.importorskip("pyarrow")
    handler = signal.getsignal(signal.SIGTERM)
    with private_folder() as folder, contextlib.ExitStack() as stack:
        inputs = make_inputs(folder / "in", num_bytes=300_000, num_words=100)
        cluster = KillCluster(num_cpus=1, object_store_memory=80_000_000)
        stack.callback(signal.signal, signal.SIGTERM, handler)
        stack.callback(cluster.close)
        runner = stack.enter_context(contextlib.closing(WarmRunner(warm_modules(*ON_CLUSTER))))
        for one in ON_CLUSTER:
            stage = Stage(folder / one.name.replace(", ", "-"), runner, inputs, cluster)
            result = play(one, stage, seed=2, **SHORT_FORM)
            assert result.is_good, result
            assert result.num_kills == NUM_KILLS
            assert len(result.kills) > 1
