"""Statistics of the tasks of a job, per machine and per stage."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gristmill.profile import TaskTime

# Stages whose bytes are bytes of the inputs.
READING_STAGES = ("count", "encode")
NUM_SLOWEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFigures:
    """Statistics of the workers of one machine in this run."""

    node: str
    num_workers: int
    num_tasks: int
    num_bytes: int  # of the inputs
    busy_seconds: float  # of all its workers
    bytes_per_second: float  # per worker that reads inputs; 0 if none does
    num_retries: int
    num_reused: int  # tasks of an earlier run that workers of this machine reused
    slowest: TaskTime | None
    peak_memory_bytes: int | None  # of its largest worker


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """Times of the tasks of one stage, without reused tasks."""

    stage: str
    num_tasks: int
    num_reused: int
    busy_seconds: float  # of all tasks
    min_seconds: float
    median_seconds: float
    max_seconds: float
    slowest: tuple[TaskTime, ...]  # at most three, the slowest first


def figures_by_node(tasks: Iterable[TaskTime]) -> list[NodeFigures]:
    """Return one row per machine, by name."""
    nodes: dict[str, list[TaskTime]] = {}
    for task in tasks:
        nodes.setdefault(task.node, []).append(task)
    return [_of_node(node, nodes[node]) for node in sorted(nodes)]


def figures_by_stage(tasks: Iterable[TaskTime]) -> list[StageFigures]:
    """Return one row per stage, in the order in which they started."""
    stages: dict[str, list[TaskTime]] = {}
    for task in tasks:
        stages.setdefault(task.stage, []).append(task)
    return [_of_stage(stage, of_stage) for stage, of_stage in stages.items()]


def _of_node(node: str, tasks: Sequence[TaskTime]) -> NodeFigures:
    done = [task for task in tasks if not task.is_reused]
    reading = [task for task in done if task.stage in READING_STAGES]
    num_bytes, seconds = sum(task.num_bytes for task in reading), sum(task.seconds for task in reading)
    return NodeFigures(
        node=node,
        num_workers=len({task.worker for task in done}),
        num_tasks=len(done),
        num_bytes=num_bytes,
        busy_seconds=sum(task.seconds for task in done),
        bytes_per_second=num_bytes / seconds if seconds > 0 else 0.0,
        num_retries=sum(task.attempts - 1 for task in done),
        num_reused=len(tasks) - len(done),
        slowest=max(done, key=lambda task: task.seconds, default=None),
        peak_memory_bytes=max((task.peak_memory_bytes or 0 for task in done), default=0) or None,
    )


def _of_stage(stage: str, tasks: Sequence[TaskTime]) -> StageFigures:
    done = sorted((task for task in tasks if not task.is_reused), key=lambda task: (-task.seconds, task.number))
    seconds = [task.seconds for task in done] or [0.0]
    return StageFigures(
        stage=stage,
        num_tasks=len(done),
        num_reused=len(tasks) - len(done),
        busy_seconds=sum(seconds),
        min_seconds=seconds[-1],
        median_seconds=statistics.median(seconds),
        max_seconds=seconds[0],
        slowest=tuple(done[:NUM_SLOWEST]),
    )
