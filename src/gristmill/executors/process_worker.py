"""A process of `Processes`: runs calls, one after the other."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gristmill.executors.calls import Call, Outcome, perform
from gristmill.executors.done import Done
from gristmill.executors.work_folder import FileEntry

# How often a worker checks that its parent lives. A thread checks, because one step of a task may take minutes.
LOOK_SECONDS = 0.5


def serve(parent: int) -> Callable[..., dict[str, Any]]:
    """Return the function that answers requests: it takes the fields of a call and returns its outcome."""
    # The driver warns itself, once, at the line of the user's code.
    warnings.simplefilter("ignore", UserWarning)
    threading.Thread(target=_end_with_parent, args=(parent,), name="gristmill-parent", daemon=True).start()

    def answer(*fields: Any) -> dict[str, Any]:
        return asdict(perform(Call(*fields), _nothing_to_check))

    return answer


def unpack_outcome(answer: dict[str, Any]) -> Outcome:
    """Return the outcome that a worker has sent."""
    done = answer["done"]
    files = tuple(FileEntry(**entry) for entry in done["files"])
    return Outcome(**{**answer, "call": Call(**answer["call"]), "done": Done(files, done["result"])})


def _nothing_to_check() -> None:
    """Do nothing: a cancelled call ends when its process is killed."""


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(0)  # the parent died: the outcome is not needed, and partly written files stay unpublished
