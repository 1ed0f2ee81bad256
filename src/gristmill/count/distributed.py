"""Counting in parts with any executor: the job, its calls, and the table at the end.

The table is identical to that of `count_words` in one process, for every size of parts, number of partitions and
executor. `tasks.py` has the code of the workers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gristmill._core import RunMerger, WordTable
from gristmill.corpus import FoundFiles
from gristmill.corpus.batches import Cutting
from gristmill.corpus.skipped import warn_of_skipped
from gristmill.corpus.stretches import cut_into_parts, inputs_to_json, part_to_json
from gristmill.count.tasks import CountPlan, RunPlace, added_runs, open_plan, run_sizes, unpack_run
from gristmill.errors import MemoryLimitError
from gristmill.executors.calls import Call, Outcome
from gristmill.executors.done import Done, read_done
from gristmill.executors.driver import MAX_ATTEMPTS, run_stages
from gristmill.executors.executor import Executor, Workers
from gristmill.executors.job import JOB_FILE, Job, OpenJob, job_location, open_job
from gristmill.executors.watch import Watch
from gristmill.executors.work_folder import DamagedPartError, WorkFolder
from gristmill.lock import lock_file
from gristmill.pretokenize.patterns import Pattern, warn_of_slow_pattern
from gristmill.profile import Stage, TaskTime
from gristmill.progress import OnProgress

KIND = "count"
PREFIX = "gristmill-"  # of the name of a temporary folder
COUNT = "gristmill.count.tasks:count_part"
MERGE = "gristmill.count.tasks:merge_runs"
# Partitions of a small corpus: a small cluster can merge this many at once, and each costs a file and a task.
FEW_PARTITIONS = 8
MAX_PARTITIONS = 128
BYTES_PER_PARTITION = 16_000_000_000
# Memory of the driver's merger in addition to the table.
JOIN_BYTES = 64_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class CountRequest:
    """The arguments of `count_words` for a corpus of files."""

    files: FoundFiles
    options: dict[str, Any]  # JSON; everything that affects the result
    memory_limit: int | None

    def job(self, part_bytes: int | None) -> Job:
        """Return the job without its parts."""
        num_bytes = self.files.num_bytes
        size = part_bytes or default_count_bytes(num_bytes)
        settings = {
            "part_bytes": size,
            "num_partitions": default_partitions(num_bytes, size),
            "memory_limit": self.memory_limit,
        }
        return Job(KIND, list(inputs_to_json(self.files)), self.options, settings, [])


class CountedParts(NamedTuple):
    """The result of a job."""

    table: WordTable
    stages: list[Stage]
    tasks: tuple[TaskTime, ...]


def default_count_bytes(num_bytes: int) -> int:
    """Return the default size of parts: a quarter of the corpus, or a multiple of eight parts of at most 256 MiB.

    Parts are larger than for encoding: one core counts 256 MB in 0.4 seconds, and the additional cost of a part
    (sorting, writing and merging its words) grows with its vocabulary. On 1 GB of English, two threads of `Local` took
    1.15 times the CPU time of one process with parts of 256 MB, 1.3 times with 128 MB and 1.5 times with 64 MB.

    >>> default_count_bytes(10**8), default_count_bytes(10**9), default_count_bytes(10**12)
    (64000000, 250000000, 268240344)
    """
    most = 256 << 20
    number = 4 if num_bytes <= 4 * most else -(-num_bytes // (8 * most)) * 8
    return max(-(-num_bytes // number), 64_000_000)


def default_partitions(num_bytes: int, part_bytes: int) -> int:
    """Return the default number of partitions of the words: at most one per part, and few for the size of the corpus.

    >>> default_partitions(1000, 2000), default_partitions(10**9, 250_000_000), default_partitions(10**12, 256_000_000)
    (1, 4, 63)
    """
    few = min(max(-(-num_bytes // BYTES_PER_PARTITION), FEW_PARTITIONS), MAX_PARTITIONS)
    return min(max(1, -(-num_bytes // part_bytes)), few)


def make_request(
    files: FoundFiles,
    *,
    pattern: Pattern,
    special_tokens: Sequence[str],
    min_frequency: int,
    reading: dict[str, Any],
    memory_limit: int | None,
) -> CountRequest:
    """Return the request. File names become absolute, because a worker may have another current folder."""
    inputs = tuple(
        dataclasses.replace(input, name=os.path.abspath(input.name)) if input.is_local else input  # noqa: PTH100
        for input in files.inputs
    )
    options = {
        "pattern": pattern.to_json(),
        "special_tokens": list(special_tokens),
        "min_frequency": min_frequency,
        "reading": reading,
    }
    return CountRequest(FoundFiles(inputs), options, memory_limit)


def count_in_parts(
    request: CountRequest,
    executor: Executor,
    on_progress: OnProgress | None,
    save: Callable[[WordTable], None] = lambda _: None,
) -> CountedParts:
    """Return the words of a corpus, counted by the workers of `executor`.

    `save` receives the table, then the work folder is removed. If `save` fails, the job stays and can be resumed.
    """
    warn_of_slow_pattern(Pattern.from_json(request.options["pattern"]))
    watch = Watch(on_progress)
    with open_count_job(request, executor) as opened:
        with executor.open() as workers:
            if executor.work_folder is None:
                workers.check_on_this_machine()
            counted = run_count(workers, opened, watch)
        save(counted.table)
        opened.folder.remove()  # after the workers have ended, because the copy of a slow task may still write
    return counted._replace(tasks=tuple(watch.tasks))


@contextlib.contextmanager
def open_count_job(request: CountRequest, executor: Executor) -> Iterator[OpenJob]:
    """Open the job in its work folder, or in a temporary folder that is removed at the end of the block."""
    job = request.job(executor.part_bytes)
    with contextlib.ExitStack() as stack:
        default = ""
        if executor.work_folder is None:
            remove_abandoned_jobs()
            # After Ctrl-C, a thread may still write while the folder is removed. That is not an error.
            temporary = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
            default = f"{stack.enter_context(temporary)}/{KIND}"
        location = job_location(job, work_folder=executor.work_folder, default=default)
        yield stack.enter_context(open_job(location, job, lambda _: make_parts(job, request.files)))


def remove_abandoned_jobs() -> None:
    """Remove the jobs that killed processes have left in the temporary folder. The job of a running one is locked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{KIND}"):
        with contextlib.suppress(OSError):
            status = folder.parent.lstat()
            is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
            # A folder without a job may belong to a process that is about to lock it.
            if not is_own or not stat.S_ISDIR(status.st_mode) or not (folder / JOB_FILE).is_file():
                continue
            descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
            try:
                if lock_file(descriptor, folder):
                    shutil.rmtree(folder.parent, ignore_errors=True)
            finally:
                os.close(descriptor)


def make_parts(job: Job, files: FoundFiles) -> list[Any]:
    """Return the parts of a new job, in the form of `Job.parts`."""
    plan = CountPlan.from_job(job, files)
    parts = cut_into_parts(files, plan.reading, part_bytes=job.settings["part_bytes"], cutting=_cutting(plan))
    return [part_to_json(part) for part in parts]


def _cutting(plan: CountPlan) -> Cutting:
    if plan.pattern.name is not None:
        return Cutting.of(plan.make_counter().last_cut, plan.special_tokens)
    from gristmill.count.regex_counting import Specials  # not at the top: rarely needed

    return Specials(plan.special_tokens).cutting


def count_calls(job: Job, location: str) -> list[Call]:
    """Return the calls of stage "count", one per part. The size of a part is its approximate share of its inputs."""
    num_stretches = Counter(stretch[0] for part in job.parts for stretch in part)
    sizes = [
        sum(int(job.inputs[stretch[0]]["num_bytes"]) // num_stretches[stretch[0]] for stretch in part)
        for part in job.parts
    ]
    return [Call("count", COUNT, location, number, size) for number, size in enumerate(sizes)]


def merge_calls(job: Job, location: str, num_bytes: Sequence[int] | None = None) -> list[Call]:
    """Return the calls of stage "merge", one per partition. `num_bytes` are the sizes of the partitions."""
    num_partitions = job.settings["num_partitions"]
    sizes = num_bytes or [0] * num_partitions
    return [Call("merge", MERGE, location, number, size) for number, size in enumerate(sizes)]


def run_count(workers: Workers, opened: OpenJob, watch: Watch) -> CountedParts:
    """Run all unfinished tasks of a job, and return the table."""
    job, folder = opened.job, opened.folder

    def count_stage(_: list[Outcome]) -> list[Call]:
        return count_calls(job, folder.location)

    def merge_stage(outcomes: list[Outcome]) -> list[Call]:
        return merge_calls(job, folder.location, _partition_bytes(outcomes, job.settings["num_partitions"]))

    began = time.perf_counter()
    for attempt in range(MAX_ATTEMPTS):
        counted, merged = run_stages(workers, folder, [count_stage, merge_stage], watch)
        counting_seconds = time.perf_counter() - began
        try:
            result = finish_count(folder, [outcome.done for outcome in counted], [outcome.done for outcome in merged])
        except DamagedPartError as error:
            if attempt == MAX_ATTEMPTS - 1:
                raise
            folder.discard(f"{error.task}.ok")
            continue
        break
    result.stages[0] = dataclasses.replace(result.stages[0], seconds=counting_seconds)
    return result


def _partition_bytes(outcomes: Iterable[Outcome], num_partitions: int) -> list[int]:
    sizes = np.zeros(num_partitions, np.int64)
    for outcome in outcomes:
        sizes += run_sizes(outcome.done.result["runs"])
    return [int(size) for size in sizes]


def read_results(folder: WorkFolder, stage: str, number: int) -> list[Done]:
    """Return the results of the `number` tasks of a stage. Raises DamagedPartError for the first unfinished one."""
    found = []
    for task in (f"{stage}-{index:05d}" for index in range(number)):
        done = read_done(folder, task)
        if done is None:
            raise DamagedPartError(f"the task {task} is not done in {folder.location}", task=task)
        found.append(done)
    return found


def finish_count(folder: WorkFolder, counted: Sequence[Done], merged: Sequence[Done]) -> CountedParts:
    """Return the table of all words from the results of both stages.

    Raises DamagedPartError, with the task to run again, if a file is not what the task wrote.
    """
    began = time.perf_counter()
    plan = open_plan(folder)
    runs = [unpack_run(f"merge-{number:05d}", done.result["runs"], 0) for number, done in enumerate(merged)]
    num_words, num_bytes = sum(run.num_words for run in runs), sum(run.num_bytes for run in runs)
    _check_size(plan, num_words, num_bytes)
    source_bytes = sum(done.result["source_bytes"] for done in counted)
    table = _join(folder, runs, num_words, num_bytes, source_bytes)
    _warn(plan, counted)
    stages = [
        Stage(
            stage="count",
            seconds=0.0,
            num_bytes=source_bytes,
            num_words=sum(done.result["num_words"] for done in merged),
            num_pieces=sum(done.result["num_pieces"] for done in counted),
        ),
        Stage(stage="join", seconds=time.perf_counter() - began, num_words=len(table)),
    ]
    return CountedParts(table, stages, ())


def _join(folder: WorkFolder, runs: list[RunPlace], num_words: int, num_bytes: int, source_bytes: int) -> WordTable:
    merger = RunMerger(by_first=True, spill_folder=tempfile.gettempdir(), memory_limit=JOIN_BYTES)
    with added_runs(folder, merger, ((run, 0) for run in runs)):
        return merger.make_table(num_words=num_words, num_bytes=num_bytes, source_bytes=source_bytes)


def _check_size(plan: CountPlan, num_words: int, num_bytes: int) -> None:
    needed = num_bytes + 3 * 8 * (num_words + 1)
    if plan.memory_limit is not None and needed > plan.memory_limit:
        raise MemoryLimitError(
            f"the table of {num_words} words takes {needed} bytes, more than memory_limit={plan.memory_limit}. "
            f"Pass a larger memory_limit, or a larger min_frequency to keep fewer words."
        )


def _warn(plan: CountPlan, counted: Iterable[Done]) -> None:
    skipped = {index: reason for done in counted for index, reason in done.result["skipped"]}
    warn_of_skipped(skipped, len(plan.files.inputs))
