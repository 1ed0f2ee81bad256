"""Executor options of a command (threads, processes or a cluster), and the summary of its tasks."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from gristmill.cli.options import Threads, format_size
from gristmill.cli.table import columns
from gristmill.cli.values import UsageError, byte_size, one_of, whole_number
from gristmill.executors.executor import EXECUTORS, executor_class
from gristmill.executors.job import JOB_FILE, JOB_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gristmill.corpus import FoundFiles
    from gristmill.count import Words
    from gristmill.executors import Executor
    from gristmill.executors.summary import NodeFigures
    from gristmill.profile import TaskTime


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Options of commands that can run on other processes and machines."""

    threads: Threads = None
    """Number of threads, with --executor local."""

    executor: Annotated[str, one_of(EXECUTORS)] = "local"
    """Executor: threads, processes, or a Ray cluster. The output is identical."""

    workers: Annotated[
        int | None, whole_number("--workers"), tyro.conf.arg(help_behavior_hint="(default: all cores)")
    ] = None
    """Number of processes, or of workers in the cluster."""

    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Address of the Ray cluster: ray://HOST:PORT, or auto. By default, starts one on this machine."""

    work_folder: Annotated[
        str | None, tyro.conf.arg(metavar="FOLDER|URL", help_behavior_hint="(default: next to the output)")
    ] = None
    """Folder for parts until the job is done. All workers need access to it."""

    part_size: Annotated[
        int | None,
        byte_size("--part-size"),
        tyro.conf.arg(help_behavior_hint="(default: by corpus size, at most 256MiB)"),
    ] = None
    """Approximate size of the corpus per task, such as 256MB."""

    @property
    def uses_tasks(self) -> bool:
        """Whether the work is split into tasks. Otherwise threads of this process stream the corpus."""
        return self.executor != "local" or self.work_folder is not None or self.part_size is not None

    def run_options(self, parts: Path | None = None) -> dict[str, Any]:
        """Return the keyword arguments that select the executor.

        parts: default work folder, for functions that have none next to the output. An unfinished job in it is
            finished, whichever executor started it.
        """
        self.check_executor()
        if not self.uses_tasks and not (parts is not None and _jobs_in(parts)):
            return {"num_threads": self.threads}
        return {"executor": self._make(parts)}

    def check_words(self, corpus: FoundFiles | Words, name: str) -> None:
        """Raise `UsageError` for options of a corpus if word counts are given."""
        from gristmill.corpus import FoundFiles

        if self.uses_tasks and not isinstance(corpus, FoundFiles):
            raise UsageError(
                f"--executor, --work-folder and --part-size apply to text, but {name} holds word counts. "
                f"Omit these options."
            )

    def _make(self, parts: Path | None) -> Executor:
        options: dict[str, Any] = {
            "num_workers": self.threads if self.executor == "local" else self.workers,
            "work_folder": self.work_folder or (None if parts is None else str(parts)),
            "part_bytes": self.part_size,
        }
        if self.executor == "ray":
            options["address"] = self.address
        return executor_class(self.executor)(**options)

    def check_executor(self) -> None:
        """Raise `UsageError` for options that the executor does not support."""
        if self.address is not None and self.executor != "ray":
            raise UsageError(f"--address needs --executor ray, but --executor is {self.executor}. Pass --executor ray.")
        if self.workers is not None and self.executor == "local":
            raise UsageError(
                f"--workers needs --executor processes or ray. Pass --executor processes, or --threads {self.workers} "
                f"for threads of this process."
            )
        if self.threads is not None and self.executor != "local":
            raise UsageError(
                f"--threads needs --executor local: each worker of --executor {self.executor} has one thread. "
                f"Pass --workers {self.threads}."
            )
        if self.work_folder == "":
            raise UsageError("--work-folder is empty. Pass a folder or a URL.")
        if self.executor != "local" and (self.work_folder or "").startswith("memory://"):
            raise UsageError(
                f"--work-folder {self.work_folder} is in the memory of this process, so other workers cannot access "
                f"it. Pass a folder that all workers share, or a URL such as s3://bucket/work."
            )


def parts_beside(output: Path) -> Path:
    """Return the work folder of a command that writes one file.

    >>> parts_beside(Path("data/words.gmw")).as_posix()
    'data/.words.gmw.parts'
    """
    return output.with_name(f".{output.name}.parts")


def remove_parts(output: Path) -> None:
    """Remove the jobs left next to a file that is now complete."""
    parts = parts_beside(output)
    for job in _jobs_in(parts):
        shutil.rmtree(job, ignore_errors=True)
    with contextlib.suppress(OSError):  # missing, or it contains other files
        parts.rmdir()


def remove_dead_parts(output: Path) -> None:
    """Remove the jobs of processes that were killed after they had written `output`, before they removed their parts.

    An unfinished job that is to replace `output`, and one that a process has locked, stay.
    """
    if not output.exists():
        return
    from gristmill.lock import lock_file

    parts = parts_beside(output)
    for job in _jobs_in(parts):
        with contextlib.suppress(OSError):
            descriptor = os.open(job, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
            try:
                if lock_file(descriptor, job) and _is_done(job, output):
                    shutil.rmtree(job, ignore_errors=True)
            finally:
                os.close(descriptor)
    with contextlib.suppress(OSError):  # missing, or it contains other files
        parts.rmdir()


def _is_done(job: Path, output: Path) -> bool:
    """Whether a job is done: `output` is newer than all of its files, or it has begun to be removed."""
    if not (job / JOB_FILE).exists():
        return True
    return max(path.lstat().st_mtime_ns for path in job.iterdir()) <= output.stat().st_mtime_ns


def _jobs_in(parts: Path) -> list[Path]:
    return [path for path in parts.glob("*-*") if JOB_NAME.fullmatch(path.name)] if parts.is_dir() else []


def task_rows(tasks: Sequence[TaskTime]) -> list[tuple[str, str]]:
    """Return the summary row about tasks; empty if there were no tasks."""
    return [("tasks", _counts(tasks))] if tasks else []


def task_tables(tasks: Sequence[TaskTime], *, with_times: bool) -> str:
    """Return a table per machine if there are several workers, and with `with_times` the task times per stage."""
    from gristmill.executors.summary import figures_by_node

    nodes = figures_by_node(tasks)
    tables = []
    if sum(node.num_workers for node in nodes) > 1:
        tables.append(_table_of_nodes(nodes))
    if with_times and tasks:
        tables.append(_table_of_stages(tasks))
    return "".join(f"\n\n{table}" for table in tables)


def _counts(tasks: Sequence[TaskTime]) -> str:
    num_reused = sum(task.is_reused for task in tasks)
    num_retries = sum(task.attempts - 1 for task in tasks)
    by_stage = {stage: sum(task.stage == stage for task in tasks) for stage in dict.fromkeys(t.stage for t in tasks)}
    counts = [", ".join(f"{number:,} {stage}" for stage, number in by_stage.items())]
    counts += [f"{num_reused:,} reused from an earlier run"] * bool(num_reused)
    counts += [f"{num_retries:,} {'retry' if num_retries == 1 else 'retries'}"] * bool(num_retries)
    return "; ".join(counts)


def _table_of_nodes(nodes: Sequence[NodeFigures]) -> str:
    head = ["node", "workers", "tasks", "reused", "retries", "bytes", "busy s", "MB/s each", "memory"]
    rows = [
        [
            node.node,
            f"{node.num_workers:,}",
            f"{node.num_tasks:,}",
            f"{node.num_reused:,}",
            f"{node.num_retries:,}",
            format_size(node.num_bytes),
            f"{node.busy_seconds:,.1f}",
            f"{node.bytes_per_second / 1e6:,.1f}" if node.bytes_per_second else "",
            "" if node.peak_memory_bytes is None else format_size(node.peak_memory_bytes),
        ]
        for node in nodes
    ]
    return columns(head, rows)


def _table_of_stages(tasks: Sequence[TaskTime]) -> str:
    from gristmill.executors.summary import figures_by_stage

    head = ["seconds per task", "tasks", "min", "median", "max", "sum", "slowest"]
    rows = [
        [
            stage.stage,
            f"{stage.num_tasks:,}",
            f"{stage.min_seconds:.2f}",
            f"{stage.median_seconds:.2f}",
            f"{stage.max_seconds:.2f}",
            f"{stage.busy_seconds:,.1f}",
            ", ".join(f"{task.number} ({task.seconds:.2f} s, {task.node})" for task in stage.slowest),
        ]
        for stage in figures_by_stage(tasks)
    ]
    return columns(head, rows)
