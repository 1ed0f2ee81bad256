"""`Watch`: what happens to the tasks of a job, for whoever looks on, and for the figures afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from gristmill.executors.calls import Call, Outcome
from gristmill.profile import TaskTime
from gristmill.progress import OnProgress

# What a bar calls a stage: "merge" is there that of merging pairs.
SHOWN = {"merge": "join"}
# Reports are no closer together, but for the last one of a stage: parts that are reused come by the thousand.
REPORT_SECONDS = 0.1


class Watch:
    """Reports progress, and remembers how long each task took."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self.num_retries = 0  # tasks that lost their worker, or whose files were found damaged afterwards
        self.num_copies = 0  # slow tasks that were begun a second time
        self._on_progress = on_progress
        self._tasks: dict[tuple[str, int], TaskTime] = {}
        self._next_report = 0.0
        self._stage = ""
        self._num_parts = self._parts = self._reused = 0
        self._total_bytes = self._done_bytes = self._reused_bytes = 0

    @property
    def tasks(self) -> list[TaskTime]:
        """How long each task took, in the order in which they ended."""
        return list(self._tasks.values())

    @property
    def num_reused(self) -> int:
        """The number of tasks that an earlier run had done."""
        return sum(task.is_reused for task in self._tasks.values())

    def begin(self, calls: Sequence[Call]) -> None:
        """A stage with these calls begins."""
        self._stage = calls[0].stage if calls else ""
        self._num_parts, self._parts, self._reused = len(calls), 0, 0
        self._total_bytes = sum(call.num_bytes for call in calls)
        self._done_bytes = self._reused_bytes = 0

    def done(self, outcome: Outcome, attempts: int) -> None:
        """A call has ended well."""
        self._remember(outcome, attempts)
        num_bytes = outcome.call.num_bytes
        self._parts += 1
        self._done_bytes += num_bytes
        if outcome.is_reused:
            self._reused += 1
            self._reused_bytes += num_bytes

    def retried(self) -> None:
        """A task has to run again."""
        self.num_retries += 1

    def copied(self) -> None:
        """A slow task was begun a second time, elsewhere."""
        self.num_copies += 1

    def tick(self) -> None:
        """Report how things are; a few times a second, whether or not anything has happened."""
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
            return  # this run itself did it, before it found other files damaged
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
        )
        if before is not None:
            task = replace(task, attempts=attempts + before.attempts)
        self._tasks[call.stage, call.number] = task
