"""A Ray cluster on this machine whose workers and nodes are killed: a head node and two others, of one CPU each."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STAGES = ("count-", "merge-", "encode-", "assemble-")  # Ray names a busy worker after its task
NUM_NODES = 2
TAG = "GRISTMILL_KILL_CLUSTER"  # environment variable of its processes: other clusters may run on this machine


class KillCluster:
    """`cluster` is one of `ray.cluster_utils`; its head node is never killed."""

    def __init__(self, **node_options: Any) -> None:
        from ray.cluster_utils import Cluster

        self._tag = f"{os.getpid()}.{int.from_bytes(os.urandom(6))}"
        self._node_options = node_options
        handler = signal.getsignal(signal.SIGTERM)
        with self._environment():
            self._cluster: Any = Cluster(initialize_head=True, head_node_args=node_options)
            self._nodes = [self._cluster.add_node(**node_options) for _ in range(NUM_NODES)]
        signal.signal(signal.SIGTERM, handler)

    @contextlib.contextmanager
    def _environment(self) -> Iterator[None]:
        """Set the environment that nodes and their workers inherit."""
        new = {TAG: self._tag, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        old = {name: os.environ.get(name) for name in new}
        os.environ.update(new)
        try:
            yield
        finally:
            for name, value in old.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def busy_workers(self) -> list[int]:
        """Return the processes of this cluster that run a task of Gristmill."""
        titles, wanted, found = tuple(f"ray::{stage}".encode() for stage in STAGES), f"{TAG}={self._tag}".encode(), []
        for process in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
            with contextlib.suppress(OSError):  # it has ended
                if not Path(f"/proc/{process}/cmdline").read_bytes().startswith(titles):
                    continue
                if wanted in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                    found.append(int(process))
        return found

    def kill_node(self) -> bool:
        """Kill the oldest node with all its workers, and add another one. Does nothing if no task runs."""
        if not self.busy_workers():
            return False
        if self._nodes:
            self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)
        with contextlib.suppress(Exception), self._environment():  # on a busy machine, a node may not start in time
            self._nodes.append(self._cluster.add_node(wait=False, **self._node_options))
        return True

    def close(self) -> None:
        self._cluster.shutdown()
