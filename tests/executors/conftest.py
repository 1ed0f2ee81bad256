"""A Ray cluster that the tests of a process share: three nodes of one CPU each on this machine."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SMALL = {"num_cpus": 1, "object_store_memory": 80_000_000}


@pytest.fixture(scope="session")
def python_path():
    """PYTHONPATH of processes that import the package under test and the modules of tests."""
    return os.pathsep.join([str(HERE), str(HERE.parent / "shards"), str(HERE.parent), *filter(None, sys.path)])


@pytest.fixture(scope="session")
def ray_nodes(python_path):
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    environment = pytest.MonkeyPatch()
    environment.setenv("PYTHONPATH", python_path)  # of the workers
    handler = signal.getsignal(signal.SIGTERM)
    cluster = Cluster(initialize_head=True, head_node_args=SMALL)
    for _ in range(2):
        cluster.add_node(**SMALL)
    # A process that another test forks would inherit Ray's handler, which drains the cluster instead of ending it.
    signal.signal(signal.SIGTERM, handler)
    yield cluster
    cluster.shutdown()
    environment.undo()


@pytest.fixture(scope="module")
def cluster(ray_nodes):
    """The cluster, with this process connected to it."""
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    ray.init(address=ray_nodes.address, log_to_driver=False, logging_level="ERROR")
    yield ray_nodes
    ray.shutdown()
    signal.signal(signal.SIGTERM, handler)
