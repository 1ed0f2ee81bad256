"""What a worker of a Ray cluster does: performs one call."""

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
    """The outcome of a call, or its error, as plain values.

    version: that of the driver. Another one may cut, count or encode in another way.
    """
    # The process that asked warns for itself, once, where the user's code called it.
    warnings.simplefilter("ignore", UserWarning)
    call, node = Call(*fields), node_name()
    if version != __version__:
        return {"missing": f"it has version {__version__}", "node": node}
    try:
        _check_visible(call, node)
        outcome = perform(call, _nothing_to_check, worker=str(os.getpid()))
    except Exception as error:
        return {"error": pack_error(error), "node": node}
    return {"outcome": {**asdict(outcome), "node": node}}


def node_name() -> str:
    """The name of this machine, and the first digits of Ray's id for it: one machine may be several nodes."""
    import ray

    return f"{socket.gethostname()}/{ray.get_runtime_context().get_node_id()[:6]}"


def _check_visible(call: Call, node: str) -> None:
    if open_work_folder(call.folder).size(JOB_FILE) is None:
        raise WorkerError(
            f"the node {node} does not see the job in the work folder {call.folder}. All machines must see the same "
            f"folder: pass a work_folder of a shared file system, or a URL such as s3://bucket/work."
        )


def _nothing_to_check() -> None:
    """Ray ends a task that nobody wants any more by raising KeyboardInterrupt in it."""
