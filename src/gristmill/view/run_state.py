"""Run state: whether a run is training, has finished or has stopped, and how far it is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gristmill.errors import GristmillError
from gristmill.lm.training.run_lock import where_trained
from gristmill.report.records import CONFIG_FILE, MACHINE_FILE, Records, read_object
from gristmill.report.summary import total_steps, trouble
from gristmill.view.metrics_tail import MetricsTail

__all__ = ["Description", "Status", "is_training", "records_of", "status_of", "unreadable"]

RECENT_SECONDS = 120.0  # a run of another machine counts as training if its last record is not older
PACE_SECONDS = 60.0  # of training that the speed is measured over


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The line of a run on the page. Numbers that are not known are None."""

    state: str  # "training" | "finished" | "stopped" | "waiting" | "missing" | "unreadable"
    problem: str  # a sentence if something is wrong; empty otherwise
    step: int = 0
    total: int | None = None
    loss: float | None = None
    val_loss: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    modified: float | None = None  # time of the last record, in seconds since 1970
    num_damaged: int = 0  # lines that were skipped


class Description:
    """config.json and machine.json of a run, read again when they change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: Any = None
        self.config: dict[str, Any] = {}
        self.machine: dict[str, Any] = {}
        self.problem = ""

    def refresh(self) -> None:
        """Read the files again if they have changed."""
        paths = [self._folder / name for name in (CONFIG_FILE, MACHINE_FILE)]
        seen = [_identity(path) for path in paths]
        if seen == self._seen:
            return
        self._seen, self.problem = seen, ""
        try:
            self.config, self.machine = map(read_object, paths)
        except (OSError, GristmillError) as error:
            self.problem = " ".join(str(error).split())
            if isinstance(error, OSError):
                self._seen = None  # the files may be the same when they can be read again


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def records_of(name: str, description: Description, tail: MetricsTail) -> Records:
    """Return the records as the report reads them. The caller holds the lock of the tail."""
    val, full = tail.tables["val"].table(), tail.tables["full"].table()
    return Records(
        name=name,
        config=description.config,
        machine=description.machine,
        train=tail.tables["train"].table(),
        val=_joined(val, full),
        posterior=tail.posterior,
        samples=tail.samples.since(0),
        events=tail.events.since(0),
    )


def _joined(one: Any, other: Any) -> Any:
    """Return two tables as one, ordered by step."""
    if not len(one) or not len(other):
        return one if len(one) else other
    steps = np.concatenate([one.steps, other.steps])
    order = np.argsort(steps, kind="stable")
    names = dict.fromkeys([*one.columns, *other.columns])
    columns = {name: np.concatenate([one[name], other[name]])[order] for name in names}
    return type(one)(steps[order], columns)


def status_of(name: str, folder: Path, description: Description, tail: MetricsTail) -> Status:
    """Return the status of a run. The caller holds the lock of the tail."""
    records = records_of(name, description, tail)
    train = tail.tables["train"]
    step = int(max([0.0, *(tail.tables[table].last("step") or 0.0 for table in tail.tables)]))
    total = total_steps(records)
    total = total if total is not None and 0 <= total < 2**53 else None  # a damaged file may have any number
    state = _state(folder, tail, step, total)
    problems = [tail.problem if state != "waiting" else "", description.problem, trouble(records)]
    return Status(
        state=state,
        problem=" ".join(problem for problem in problems if problem),
        step=step,
        total=total,
        loss=train.last("loss"),
        val_loss=tail.tables["val" if tail.tables["val"].count else "full"].last("loss"),
        tokens_per_second=train.last("tokens_per_second"),
        seconds_left=_seconds_left(train.table(), total) if state == "training" else None,
        modified=tail.modified,
        num_damaged=tail.num_damaged,
    )


def unreadable(error: Exception, last: Status | None) -> Status:
    """Return the status of a run that could not be read: its last figures, and what went wrong."""
    if isinstance(error, OSError):
        problem = f"The run folder cannot be read: {error.strerror or error}. The page tries again."
    else:
        words = " ".join(str(error).split())[:200]
        problem = f"The records of the run cannot be shown: {type(error).__name__}: {words}. The page tries again."
    last = last or Status(state="", problem="")
    return msgspec.structs.replace(last, state="unreadable", problem=problem, seconds_left=None)


def _state(folder: Path, tail: MetricsTail, step: int, total: int | None) -> str:
    if not folder.is_dir():
        return "missing"
    if is_training(folder, tail.modified):
        return "training"
    if tail.modified is None:
        return "waiting"
    return "finished" if total is not None and step >= total else "stopped"


def is_training(folder: Path, modified: float | None) -> bool:
    """Return whether a process trains in the folder. `modified` is the time of the last record of the run."""
    where = where_trained(folder)
    is_recent = modified is not None and time.time() - modified < RECENT_SECONDS
    return where == "here" or (where == "elsewhere" and is_recent)


def _seconds_left(train: Any, total: int | None) -> float | None:
    """Return the time that the remaining steps take at the speed of the last minute, with validations and samples."""
    seconds, steps = train["seconds"][-2_000:], train.steps[-2_000:]
    known = np.isfinite(seconds)
    seconds, steps = seconds[known], steps[known]
    if total is None or len(seconds) < 2:
        return None
    first = min(int(np.searchsorted(seconds, seconds[-1] - PACE_SECONDS)), len(seconds) - 2)
    num_steps, elapsed = steps[-1] - steps[first], seconds[-1] - seconds[first]
    if num_steps <= 0 or elapsed <= 0:
        return None
    return float(max(0.0, total - steps[-1]) * elapsed / num_steps)
