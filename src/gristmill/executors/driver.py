"""Driving a job: the calls of each stage on the workers of an executor, with retries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from gristmill.errors import WorkerError
from gristmill.executors.calls import Call, Outcome
from gristmill.executors.executor import Workers
from gristmill.executors.watch import Watch
from gristmill.executors.work_folder import DamagedPartError, WorkFolder

POLL_SECONDS = 0.2
# Of calls under way or waiting with the executor, for each worker: the next one is there when a worker is free.
CALLS_PER_WORKER = 2
MAX_ATTEMPTS = 4

# The calls of a stage, given the outcomes of the stage before.
Stage: TypeAlias = Callable[[list[Outcome]], list[Call]]


def run_stages(workers: Workers, folder: WorkFolder, stages: Sequence[Stage], watch: Watch) -> list[list[Outcome]]:
    """The outcomes of all stages, one stage after the other.

    A stage that finds a file of an earlier one damaged has that task run again.
    """
    attempts = 0
    while True:
        outcomes: list[list[Outcome]] = []
        try:
            for stage in stages:
                outcomes.append(run_calls(workers, stage(outcomes[-1] if outcomes else []), watch))
            return outcomes
        except DamagedPartError as error:
            attempts += 1
            if attempts == MAX_ATTEMPTS:
                raise
            folder.discard(f"{error.task}.ok")


def run_calls(workers: Workers, calls: Sequence[Call], watch: Watch) -> list[Outcome]:
    """The outcomes of all calls, in their order."""
    watch.begin(calls)
    outcomes: dict[int, Outcome] = {}
    attempts = [0] * len(calls)
    waiting = list(range(len(calls)))[::-1]
    under_way: dict[int, int] = {}
    while len(outcomes) < len(calls):
        while waiting and len(under_way) < CALLS_PER_WORKER * workers.num_workers:
            index = waiting.pop()
            attempts[index] += 1
            under_way[workers.submit(calls[index])] = index
        for finished in workers.wait(POLL_SECONDS):
            index = under_way.pop(finished.ticket)
            if finished.outcome is not None:
                outcomes[index] = finished.outcome
                watch.done(finished.outcome, attempts[index])
            elif finished.worker_died and attempts[index] < MAX_ATTEMPTS:
                waiting.append(index)
            elif finished.worker_died:
                raise WorkerError(
                    f"the task {calls[index].name} ended its worker {attempts[index]} times: {finished.error}"
                )
            else:
                raise finished.error or WorkerError(f"the task {calls[index].name} failed.")
    return [outcomes[index] for index in range(len(calls))]
