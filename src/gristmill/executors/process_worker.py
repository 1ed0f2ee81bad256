"""A process of `Processes`: performs the calls that come in, one after the other."""

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

# How often a worker looks for its parent. A thread does, because one step of a task may take minutes.
LOOK_SECONDS = 0.5


def serve(parent: int) -> Callable[..., dict[str, Any]]:
    """What answers the requests: each is the fields of a call, and the answer is the outcome as plain values."""
    # The process that asked warns for itself, once, where the user's code called it.
    warnings.simplefilter("ignore", UserWarning)
    threading.Thread(target=_end_with_parent, args=(parent,), name="gristmill-parent", daemon=True).start()

    def answer(*fields: Any) -> dict[str, Any]:
        return asdict(perform(Call(*fields), _nothing_to_check))

    return answer


def unpack_outcome(answer: dict[str, Any]) -> Outcome:
    """The outcome that a worker has sent."""
    done = answer["done"]
    files = tuple(FileEntry(**entry) for entry in done["files"])
    return Outcome(**{**answer, "call": Call(**answer["call"]), "done": Done(files, done["result"])})


def _nothing_to_check() -> None:
    """A call that nobody wants any more ends because its process is ended."""


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(0)  # it was killed: nobody waits for the outcome, and what is half written stays unpublished
