"""`Watch`: what happens to the tasks of a job, for whoever looks on, and for the figures afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.executors.calls import Call, Outcome
from gristmill.profile import TaskTime
from gristmill.progress import OnProgress


class Watch:
    """Reports progress, and remembers how long each task took."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._done_bytes = self._total_bytes = 0
        self.tasks: list[TaskTime] = []

    def begin(self, calls: Sequence[Call]) -> None:
        """A stage with these calls begins."""
        self._done_bytes, self._total_bytes = 0, sum(call.num_bytes for call in calls)

    def done(self, outcome: Outcome, attempts: int) -> None:
        """A call has ended well."""
        call = outcome.call
        self.tasks.append(
            TaskTime(
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
        )
        self._done_bytes += call.num_bytes
        if self._on_progress is not None:
            self._on_progress(call.stage, self._done_bytes, self._total_bytes)
