"""`Watch`: follows the tasks of a job, to report progress and to record how long they took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from gristmill.executors.calls import Call, Outcome
from gristmill.profile import TaskTime
from gristmill.progress import OnProgress

# Names of stages in progress bars, where "merge" means merging pairs.
SHOWN = {"merge": "join"}
# Minimum time between reports, except for the last of a stage: reused parts arrive by the thousand.
REPORT_SECONDS = 0.1


class Watch:
    """Reports progress, and records how long each task took."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self.num_retries = 0  # tasks that lost their worker, or whose files were damaged
        self.num_copies = 0  # copies of slow tasks
        self._on_progress = on_progress
        self._tasks: dict[tuple[str, int], TaskTime] = {}
        self._next_report = 0.0
        self._stage = ""
        self._num_parts = self._parts = self._reused = 0
        self._total_bytes = self._done_bytes = self._reused_bytes = 0

    @property
    def tasks(self) -> list[TaskTime]:
        """How long each task took, in the order in which they finished."""
        return list(self._tasks.values())

    @property
    def num_reused(self) -> int:
        """Number of tasks that an earlier run had done."""
        return sum(task.is_reused for task in self._tasks.values())

    def begin(self, calls: Sequence[Call]) -> None:
        """Start a stage with these calls."""
        self._stage = calls[0].stage if calls else ""
        self._num_parts, self._parts, self._reused = len(calls), 0, 0
        self._total_bytes = sum(call.num_bytes for call in calls)
        self._done_bytes = self._reused_bytes = 0

    def done(self, outcome: Outcome, attempts: int) -> None:
        """Record a call that succeeded."""
        self._remember(outcome, attempts)
        num_bytes = outcome.call.num_bytes
        self._parts += 1
        self._done_bytes += num_bytes
        if outcome.is_reused:
            self._reused += 1
            self._reused_bytes += num_bytes

    def retried(self) -> None:
        """Record that a task must run again."""
        self.num_retries += 1

    def copied(self) -> None:
        """Record that a slow task was started a second time."""
        self.num_copies += 1

    def tick(self) -> None:
        """Report progress if a report is due. Called a few times per second."""
        now = time.monotonic()
        if self._on_progress is None or (self._parts < self._num_parts and now < self._next_report):
            return
        self._next_report = now + REPORT_SECONDS
        self._on_progress(
            SHOWN.get(self._stage, self._stage),
            self._done_bytes,
            self._total_bytes,
            initial=self._reused_bytes,
            parts=self._parts,
            num_parts=self._num_parts,
            retries=self.num_retries,
            reused=self._reused,
            copies=self.num_copies,
        )

    def _remember(self, outcome: Outcome, attempts: int) -> None:
        call = outcome.call
        before = self._tasks.get((call.stage, call.number))
        if before is not None and outcome.is_reused:
            return  # this run did it before, and then found other files damaged
        task = TaskTime(
            stage=call.stage,
            number=call.number,
            node=outcome.node,
            worker=outcome.worker,
            seconds=outcome.seconds,
            num_bytes=call.num_bytes,
            attempts=attempts,
            is_reused=outcome.is_reused,
            peak_memory_bytes=outcome.peak_memory_bytes,
            began=outcome.began,
        )
        if before is not None:
            task = replace(task, attempts=attempts + before.attempts)
        self._tasks[call.stage, call.number] = task
