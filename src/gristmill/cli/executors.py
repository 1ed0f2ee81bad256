"""Who does the work of a command: threads, processes or a cluster; and what is shown of it afterwards."""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from gristmill.cli.options import Threads
from gristmill.cli.values import UsageError, byte_size, one_of, whole_number
from gristmill.executors.executor import EXECUTORS, executor_class

if TYPE_CHECKING:
    from gristmill.executors import Executor

# What `job_location` calls the folder of a job.
_JOB = re.compile(r"(count|encode)-[0-9a-f]{16}")


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Options of commands whose work can be done by other processes and machines."""

    threads: Threads = None
    """How many threads to use, with --executor local."""

    executor: Annotated[str, one_of(EXECUTORS)] = "local"
    """Who does the work: threads, processes, or a Ray cluster. The output is the same."""

    workers: Annotated[
        int | None, whole_number("--workers"), tyro.conf.arg(help_behavior_hint="(default: all cores)")
    ] = None
    """How many processes, or workers of the cluster."""

    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """The Ray cluster: ray://HOST:PORT, or auto; without it, one is started here."""

    work_folder: Annotated[
        str | None, tyro.conf.arg(metavar="FOLDER|URL", help_behavior_hint="(default: beside the output)")
    ] = None
    """Where parts are kept until all is done; all workers must see it."""

    part_size: Annotated[
        int | None, byte_size("--part-size"), tyro.conf.arg(help_behavior_hint="(default: 64MB to 256MB)")
    ] = None
    """About how much of the corpus is one task, such as 256MB."""

    @property
    def uses_tasks(self) -> bool:
        """Whether the work is cut into tasks; otherwise threads of this process stream through the corpus."""
        return self.executor != "local" or self.work_folder is not None or self.part_size is not None

    def run_options(self, parts: Path | None = None) -> dict[str, Any]:
        """The arguments of a function of Gristmill that say who does the work.

        parts: the work folder of a command whose function has none beside the output; a job that was left there is
            finished, whoever began it.
        """
        self._check()
        if not self.uses_tasks and not (parts is not None and _jobs_in(parts)):
            return {"num_threads": self.threads}
        return {"executor": self._make(parts)}

    def _make(self, parts: Path | None) -> Executor:
        options: dict[str, Any] = {
            "num_workers": self.threads if self.executor == "local" else self.workers,
            "work_folder": self.work_folder or (None if parts is None else str(parts)),
            "part_bytes": self.part_size,
        }
        if self.executor == "ray":
            options["address"] = self.address
        return executor_class(self.executor)(**options)

    def _check(self) -> None:
        """Refuse options that mean nothing to the executor, or that it cannot do."""
        if self.address is not None and self.executor != "ray":
            raise UsageError(f"--address is for a Ray cluster, and --executor is {self.executor}. Pass --executor ray.")
        if self.workers is not None and self.executor == "local":
            raise UsageError(
                f"--workers is for --executor processes and ray. Pass --threads {self.workers} for threads of this "
                f"process, or --executor processes."
            )
        if self.threads is not None and self.executor != "local":
            raise UsageError(
                f"--threads is for --executor local: each worker of --executor {self.executor} has one thread. "
                f"Pass --workers {self.threads}."
            )
        if self.work_folder == "":
            raise UsageError("--work-folder '' names no folder. Pass a folder or a URL.")
        if self.executor != "local" and (self.work_folder or "").startswith("memory://"):
            raise UsageError(
                f"--work-folder {self.work_folder} is in the memory of this process, where other workers do not see "
                f"it. Pass a folder that all workers share, or a URL such as s3://bucket/work."
            )


def parts_beside(output: Path) -> Path:
    """The work folder of a command that writes one file.

    >>> parts_beside(Path("data/words.gmw")).as_posix()
    'data/.words.gmw.parts'
    """
    return output.with_name(f".{output.name}.parts")


def remove_parts(output: Path) -> None:
    """Remove the jobs that are left beside a file that is complete now."""
    parts = parts_beside(output)
    for job in _jobs_in(parts):
        shutil.rmtree(job, ignore_errors=True)
    with contextlib.suppress(OSError):  # not there, or somebody has put something else into it
        parts.rmdir()


def _jobs_in(parts: Path) -> list[Path]:
    return [path for path in parts.glob("*-*") if _JOB.fullmatch(path.name)] if parts.is_dir() else []
