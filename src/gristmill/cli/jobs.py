"""Numbered tasks of a job for `gristmill task`: find the job, run tasks, and show their status."""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from gristmill.cli.options import format_size, plural
from gristmill.cli.table import columns, pairs
from gristmill.cli.values import UsageError
from gristmill.executors.job import JOB_NAME

if TYPE_CHECKING:
    from gristmill.executors.calls import Call
    from gristmill.executors.job import Job
    from gristmill.executors.work_folder import WorkFolder

# How many times a task is run if its input files are damaged.
MAX_REPAIRS = 3
MAX_SHOWN = 8


def parse_numbers(texts: Sequence[str]) -> Iterator[int]:
    """Return the task numbers in the given order, without duplicates.

    Lazy, because a range such as 0-999999999, far more than the job has, would fill the memory.

    >>> list(parse_numbers(["7", "0-3", "2"]))
    [7, 0, 1, 2, 3]
    """
    if not texts:
        raise UsageError("no task given. Pass at least one number such as 0, or a range such as 0-9.")
    return _each_once([_parse_range(text) for text in texts])


def _parse_range(text: str) -> range:
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text, re.ASCII)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
    if last < first:
        raise UsageError(f"{text!r} is not a task number. Pass a number such as 7, or a range such as 0-9.")
    return range(first, last + 1)


def _each_once(ranges: Sequence[range]) -> Iterator[int]:
    seen: set[int] = set()
    for number in chain.from_iterable(ranges):
        if number not in seen:
            seen.add(number)
            yield number


def find_job(text: str) -> str | None:
    """Return the location of the job with this output or work folder, or None if it is complete."""
    from gristmill.executors.job import JOB_FILE
    from gristmill.executors.work_folder import open_work_folder

    beside = f"{os.path.dirname(text) or '.'}/.{os.path.basename(text.rstrip('/'))}.parts"  # noqa: PTH119, PTH120
    inside = text.rstrip("/")
    for location in (text, f"{inside}/.parts", f"{inside}/.new/.parts", beside):
        folder = open_work_folder(location)
        if _has(folder, JOB_FILE):
            return location
        jobs = [f"{location.rstrip('/')}/{name}" for name in _names(folder) if JOB_NAME.fullmatch(name)]
        jobs = [job for job in jobs if _has(open_work_folder(job), JOB_FILE)]
        if len(jobs) > 1:
            raise UsageError(f"{location} contains {len(jobs)} jobs. Pass one of them: {', '.join(sorted(jobs))}.")
        if jobs:
            return jobs[0]
    if _is_word_table(Path(text)) or _has(open_work_folder(text), "manifest.json"):
        return None
    raise FileNotFoundError(errno.ENOENT, "no job found. Plan one with 'gristmill task plan'", text)


def _is_word_table(path: Path) -> bool:
    """Return whether the path is the output of a finished count job, and not any other file, such as an input."""
    from gristmill.count.words import MAGIC

    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _has(folder: WorkFolder, name: str) -> bool:
    try:
        return folder.size(name) is not None
    except NotADirectoryError:
        return False


def _names(folder: WorkFolder) -> list[str]:
    try:
        return folder.names()
    except (FileNotFoundError, NotADirectoryError):
        return []


def complete(shown: str) -> str:
    return f"  {shown} is complete: nothing left to do."


class JobTasks:
    """Tasks of a job, numbered consecutively: parts first, then tasks of the second stage."""

    def __init__(self, location: str) -> None:
        from gristmill.executors.job import Job
        from gristmill.executors.work_folder import open_work_folder

        self.folder = open_work_folder(location)
        self.job = Job.read(self.folder)
        self.parts = _part_calls(self.folder, self.job)
        self._done: set[str] = set()

    def second(self) -> list[Call] | None:
        """Return the calls of the second stage, or None if they are not known because parts are missing or damaged."""
        from gristmill.executors.work_folder import DamagedPartError

        if self.job.kind == "encode" and self.missing(self.parts):
            return None
        try:
            return _second_calls(self.folder, self.job)
        except DamagedPartError as error:  # mark the part as not done
            self.folder.discard(f"{error.task}.ok")
            self._done.discard(error.task)
            return None

    def missing(self, calls: Sequence[Call]) -> list[int]:
        """Return the numbers of the calls that are not done, relative to their stage."""
        from gristmill.executors.done import read_all_done

        unknown = [call.name for call in calls if call.name not in self._done]
        found = read_all_done(self.folder, unknown)
        self._done |= {name for name, done in zip(unknown, found, strict=True) if done is not None}
        return [call.number for call in calls if call.name not in self._done]


def _part_calls(folder: WorkFolder, job: Job) -> list[Call]:
    """Return the calls of the first stage without checking their status, because up to 10,000 processes call this."""
    if job.kind == "count":
        from gristmill.count.distributed import count_calls

        return count_calls(job, folder.location)
    from gristmill.shards.distributed import encode_calls
    from gristmill.shards.encode_job import load_work

    return encode_calls(load_work(folder))


def _second_calls(folder: WorkFolder, job: Job) -> list[Call]:
    """Return the calls of the second stage. For encoding, they depend on the results of all parts."""
    if job.kind == "count":
        from gristmill.count.distributed import merge_calls

        return merge_calls(job, folder.location)
    from gristmill.shards.steps import calls_of_encode

    return calls_of_encode(folder.location)[len(job.parts) :]


def run_tasks(location: str, shown: str, numbers: Iterable[int]) -> None:
    """Run tasks by number, in the given order, and print one line per task."""
    tasks = JobTasks(location)
    for number in numbers:
        if number < len(tasks.parts):
            print(_perform(tasks, tasks.parts[number]), flush=True)
            continue
        second = tasks.second()
        check_parts(tasks, shown, f"task {number} needs all parts, but ")
        assert second is not None
        _refuse_finished(tasks)
        last = len(tasks.parts) + len(second) - 1
        if number > last:
            raise UsageError(f"task {number} does not exist: the job has tasks 0 to {last}.")
        print(_perform(tasks, second[number - len(tasks.parts)]), flush=True)


def _perform(tasks: JobTasks, call: Call) -> str:
    """Run one task. If a part that it reads is damaged, run that part again first."""
    from gristmill.executors.calls import perform
    from gristmill.executors.work_folder import DamagedPartError

    for attempt in range(MAX_REPAIRS):
        try:
            outcome = perform(call, lambda: None)
            how = "already done" if outcome.is_reused else f"done in {outcome.seconds:.2f} s"
            return f"  {call.name}  {how}"
        except DamagedPartError as error:
            damaged = [part for part in tasks.parts if part.name == error.task]
            if attempt + 1 == MAX_REPAIRS or not damaged:
                raise
            tasks.folder.discard(f"{error.task}.ok")
            print(f"  {error.task}  damaged, running it again", flush=True)
            perform(damaged[0], lambda: None)
    raise AssertionError


def check_parts(tasks: JobTasks, shown: str, why: str = "") -> None:
    """Raise `GristmillError` unless all parts are done."""
    from gristmill.errors import GristmillError

    missing = tasks.missing(tasks.parts)
    if missing:
        # The complete command, for copy and paste.
        words = shlex.join(["gristmill", "task", "run", shown, *ranges(missing)])
        raise GristmillError(
            f"{why}{plural(len(missing), 'part')} of {len(tasks.parts):,} {'is' if len(missing) == 1 else 'are'} not "
            f"done: {listed(missing)}. Run {words!r} first."
        )


def _refuse_finished(tasks: JobTasks) -> None:
    """Raise `GristmillError` if the output holds finished shards, whose files a task would replace."""
    from gristmill.errors import GristmillError

    if tasks.job.kind == "count":
        return
    from gristmill.shards.encode_job import load_work

    target = load_work(tasks.folder).target
    if _has(target, "manifest.json"):
        raise GristmillError(
            f"{target.location} contains finished shards, of this job or another, and tasks do not replace them. "
            f"Remove the work folder {tasks.folder.location}, or plan the job again with another output."
        )


def ranges(numbers: Sequence[int]) -> list[str]:
    """Return ascending numbers as ranges for `task run`.

    >>> ranges([0, 1, 2, 5, 7, 8])
    ['0-2', '5', '7-8']
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]


def listed(numbers: Sequence[int]) -> str:
    """Return the first few ranges of the numbers, for a message or table.

    >>> listed([0, 1, 2, 5])
    '0-2, 5'
    """
    words = ranges(numbers)
    return ", ".join(words[:MAX_SHOWN]) + ", …" * (len(words) > MAX_SHOWN)


def overview(location: str, shown: str) -> str:
    """Return the status of a job and the next command."""
    tasks = JobTasks(location)
    job = tasks.job
    second = tasks.second()
    stages = {job.kind: tasks.parts, {"count": "merge", "encode": "assemble"}[job.kind]: second}
    rows, first, left = [], 0, []
    for stage, calls in stages.items():
        if calls is None:  # the number of shards depends on the results of all parts
            rows.append([stage, f"from {first}", "?", "0", "known when all parts are done"])
            continue
        missing = [first + number for number in tasks.missing(calls)]
        left.append(missing)
        numbers = listed(range(first, first + len(calls))) or "none"
        rows.append([stage, numbers, f"{len(calls):,}", f"{len(calls) - len(missing):,}", listed(missing) or "none"])
        first += len(calls)
    num_bytes = sum(int(input.get("num_bytes") or 0) for input in job.inputs)
    summary = pairs(
        [
            ("job", f"{job.kind} {job.id}, {plural(len(job.inputs), 'input')}, {format_size(num_bytes)}"),
            ("work folder", tasks.folder.location),
            ("next", _next(shown, left)),
        ]
    )
    return summary + "\n\n" + columns(["stage", "numbers", "tasks", "done", "not done"], rows)


def _next(shown: str, left: list[list[int]]) -> str:
    """Return the next command to run."""
    if left[0]:
        return shlex.join(["gristmill", "task", "run", shown, *_shortened(left[0])])
    return shlex.join(["gristmill", "task", "finish", shown])


def _shortened(numbers: Sequence[int]) -> list[str]:
    return ranges(numbers)[:MAX_SHOWN]
