"""The worker of a Ray cluster: runs one call."""

from __future__ import annotations

import os
import socket
import warnings
from dataclasses import asdict
from typing import Any

from gristmill.errors import WorkerError
from gristmill.executors.calls import Call, perform
from gristmill.executors.job import JOB_FILE
from gristmill.executors.work_folder import open_work_folder
from gristmill.pretokenize.worker import pack_error
from gristmill.version import __version__


def answer(version: str, fields: tuple[Any, ...]) -> dict[str, Any]:
    """Run a call; return its outcome or its error as plain values.

    version: the version of the driver. Another version may cut, count or encode differently.
    """
    # The driver warns itself, once, at the line of the user's code.
    warnings.simplefilter("ignore", UserWarning)
    call, node = Call(*fields), node_name()
    if version != __version__:
        return {"missing": f"the installed version is {__version__}", "node": node}
    try:
        _check_visible(call, node)
        outcome = perform(call, _nothing_to_check, worker=str(os.getpid()))
    except Exception as error:
        return {"error": pack_error(error), "node": node}
    return {"outcome": {**asdict(outcome), "node": node}}


def node_name() -> str:
    """Return the name of this machine and the first digits of its Ray node id: a machine may run several nodes."""
    import ray

    return f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()[:6]}"


def _check_visible(call: Call, node: str) -> None:
    if open_work_folder(call.folder).size(JOB_FILE) is None:
        raise WorkerError(
            f"the node {node} cannot access the job in the work folder {call.folder}. All machines must be able to "
            f"access it: pass a work_folder of a shared file system, or a URL such as s3://bucket/work."
        )


def _nothing_to_check() -> None:
    """Do nothing: Ray ends a cancelled task by raising KeyboardInterrupt in it."""
