"""The tasks of a job as `gristmill task` numbers them: finding the job, performing tasks, and what is done of them."""

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

# How often a task is run again whose files another task finds damaged.
MAX_REPAIRS = 3
MAX_SHOWN = 8


def parse_numbers(texts: Sequence[str]) -> Iterator[int]:
    """The numbers of tasks, each once, in the order given.

    One at a time, because a range such as 0-999999999, which is far more than the job has, would fill the memory.

    >>> list(parse_numbers(["7", "0-3", "2"]))
    [7, 0, 1, 2, 3]
    """
    if not texts:
        raise UsageError("no task given. Name at least one number, such as 0, or a range, such as 0-9.")
    return _each_once([_parse_range(text) for text in texts])


def _parse_range(text: str) -> range:
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text, re.ASCII)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
    if last < first:
        raise UsageError(f"{text!r} is not the number of a task. Write a number such as 7, or a range such as 0-9.")
    return range(first, last + 1)


def _each_once(ranges: Sequence[range]) -> Iterator[int]:
    seen: set[int] = set()
    for number in chain.from_iterable(ranges):
        if number not in seen:
            seen.add(number)
            yield number


def find_job(text: str) -> str | None:
    """The location of the job that a user means by its output or work folder; None if it is complete."""
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
            raise UsageError(f"{location} holds {len(jobs)} jobs. Name one of them: {', '.join(sorted(jobs))}.")
        if jobs:
            return jobs[0]
    if _is_word_table(Path(text)) or _has(open_work_folder(text), "manifest.json"):
        return None
    raise FileNotFoundError(errno.ENOENT, "No job here. Write one down with 'gristmill task plan'", text)


def _is_word_table(path: Path) -> bool:
    """Whether a job that counts has been finished here; any other file, such as an input, is no output of a job."""
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
    return f"  {shown} is complete: nothing is left to do."


class JobTasks:
    """The tasks of a job: parts first, then those of the second stage, numbered on."""

    def __init__(self, location: str) -> None:
        from gristmill.executors.job import Job
        from gristmill.executors.work_folder import open_work_folder

        self.folder = open_work_folder(location)
        self.job = Job.read(self.folder)
        self.parts = _part_calls(self.folder, self.job)
        self._done: set[str] = set()

    def second(self) -> list[Call] | None:
        """The calls of the second stage; None while they are not known: parts are missing, or found to be damaged."""
        from gristmill.executors.work_folder import DamagedPartError

        if self.job.kind == "encode" and self.missing(self.parts):
            return None
        try:
            return _second_calls(self.folder, self.job)
        except DamagedPartError as error:  # it counts as not done from now on
            self.folder.discard(f"{error.task}.ok")
            self._done.discard(error.task)
            return None

    def missing(self, calls: Sequence[Call]) -> list[int]:
        """The numbers of the calls that are not done, counted within their stage."""
        from gristmill.executors.done import read_all_done

        unknown = [call.name for call in calls if call.name not in self._done]
        found = read_all_done(self.folder, unknown)
        self._done |= {name for name, done in zip(unknown, found, strict=True) if done is not None}
        return [call.number for call in calls if call.name not in self._done]


def _part_calls(folder: WorkFolder, job: Job) -> list[Call]:
    """The calls of the first stage, without a look at what is done: each of 10,000 processes asks for them."""
    if job.kind == "count":
        from gristmill.count.distributed import count_calls

        return count_calls(job, folder.location)
    from gristmill.shards.distributed import encode_calls
    from gristmill.shards.encode_job import load_work

    return encode_calls(load_work(folder))


def _second_calls(folder: WorkFolder, job: Job) -> list[Call]:
    """The calls of the second stage. Those of encoding follow from what all parts have made."""
    if job.kind == "count":
        from gristmill.count.distributed import merge_calls

        return merge_calls(job, folder.location)
    from gristmill.shards.steps import calls_of_encode

    return calls_of_encode(folder.location)[len(job.parts) :]


def run_tasks(location: str, shown: str, numbers: Iterable[int]) -> None:
    """Perform tasks by number, in the order given, and print a line for each."""
    tasks = JobTasks(location)
    for number in numbers:
        if number < len(tasks.parts):
            print(_perform(tasks, tasks.parts[number]), flush=True)
            continue
        second = tasks.second()
        check_parts(tasks, shown, f"task {number} needs all parts, and ")
        assert second is not None
        _refuse_finished(tasks)
        last = len(tasks.parts) + len(second) - 1
        if number > last:
            raise UsageError(f"there is no task {number}: the job has tasks 0 to {last}.")
        print(_perform(tasks, second[number - len(tasks.parts)]), flush=True)


def _perform(tasks: JobTasks, call: Call) -> str:
    """Perform one task; a file that it finds damaged is made again first."""
    from gristmill.executors.calls import perform
    from gristmill.executors.work_folder import DamagedPartError

    for attempt in range(MAX_REPAIRS):
        try:
            outcome = perform(call, lambda: None)
            how = "done already" if outcome.is_reused else f"done in {outcome.seconds:.2f} s"
            return f"  {call.name}  {how}"
        except DamagedPartError as error:
            damaged = [part for part in tasks.parts if part.name == error.task]
            if attempt + 1 == MAX_REPAIRS or not damaged:
                raise
            tasks.folder.discard(f"{error.task}.ok")
            print(f"  {error.task}  damaged, so it is done again", flush=True)
            perform(damaged[0], lambda: None)
    raise AssertionError


def check_parts(tasks: JobTasks, shown: str, why: str = "") -> None:
    """Raise unless all parts are done."""
    from gristmill.errors import GristmillError

    missing = tasks.missing(tasks.parts)
    if missing:
        # The command in full, so that it can be pasted.
        words = shlex.join(["gristmill", "task", "run", shown, *ranges(missing)])
        raise GristmillError(
            f"{why}{plural(len(missing), 'part')} of {len(tasks.parts):,} {'is' if len(missing) == 1 else 'are'} not "
            f"done: {listed(missing)}. Run {words!r} first."
        )


def _refuse_finished(tasks: JobTasks) -> None:
    """Raise if the output holds finished shards, maybe of another job: a task would replace some of their files."""
    from gristmill.errors import GristmillError

    if tasks.job.kind == "count":
        return
    from gristmill.shards.encode_job import load_work

    target = load_work(tasks.folder).target
    if _has(target, "manifest.json"):
        raise GristmillError(
            f"{target.location} holds finished shards, of this job or another, which no task replaces. Remove the work "
            f"folder {tasks.folder.location}, or plan the job again with another output."
        )


def ranges(numbers: Sequence[int]) -> list[str]:
    """Numbers in ascending order, as `task run` takes them.

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
    """Numbers for a message or table: the first few ranges of them.

    >>> listed([0, 1, 2, 5])
    '0-2, 5'
    """
    words = ranges(numbers)
    return ", ".join(words[:MAX_SHOWN]) + ", …" * (len(words) > MAX_SHOWN)


def overview(location: str, shown: str) -> str:
    """What is done of a job and what is to be done next."""
    tasks = JobTasks(location)
    job = tasks.job
    second = tasks.second()
    stages = {job.kind: tasks.parts, {"count": "merge", "encode": "assemble"}[job.kind]: second}
    rows, first, left = [], 0, []
    for stage, calls in stages.items():
        if calls is None:  # the number of shards follows from what all parts have made
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
    """The command to run now."""
    if left[0]:
        return shlex.join(["gristmill", "task", "run", shown, *_shortened(left[0])])
    return shlex.join(["gristmill", "task", "finish", shown])


def _shortened(numbers: Sequence[int]) -> list[str]:
    return ranges(numbers)[:MAX_SHOWN]
