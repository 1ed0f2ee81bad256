"""gristmill task: the tasks of a job one by one, for Slurm or whatever else starts programs on machines.

`task plan` writes the job down, `task run` performs tasks of it by their numbers, `task finish` puts together what they
have made, and `task status` shows what is missing. Each may run any number of times, anywhere, and again after a crash.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from gristmill.cli import count_words, encode
from gristmill.cli.executors import JOB_NAME, parts_beside, remove_parts
from gristmill.cli.options import format_size, plural
from gristmill.cli.table import columns, pairs
from gristmill.cli.values import UsageError, one_of
from gristmill.corpus import FoundFiles

if TYPE_CHECKING:
    from gristmill.executors.calls import Call
    from gristmill.executors.job import Job
    from gristmill.executors.work_folder import WorkFolder

ACTIONS = ("plan", "run", "finish", "status")
PLANNED = ("count-words", "encode")
# Where the result of counting goes: a job of encoding knows its folder.
OUTPUT_FILE = "output.json"
MAX_OUTPUT_BYTES = 1 << 20
# How often a task is run again whose files another task finds damaged.
MAX_REPAIRS = 3
MAX_SHOWN = 8
# Of a work folder at a URL, at the same time.

Folder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER|URL")]


@dataclass(frozen=True, kw_only=True)
class Command:
    """Run the tasks of a large job one by one, with Slurm or anything else that starts programs.

    gristmill task plan encode CORPUS… -t TOKENIZER -o FOLDER: write the job down

    gristmill task run FOLDER N…: perform tasks by number, on any machine

    gristmill task finish FOLDER: put together what they have made

    gristmill task status FOLDER: show what is done and what is missing
    """

    action: Annotated[str, tyro.conf.Positional, one_of(ACTIONS), tyro.conf.arg(name="ACTION")]
    """plan, run, finish or status; see 'gristmill task ACTION --help'."""


@dataclass(frozen=True, kw_only=True)
class _Plan:
    action: Annotated[str, tyro.conf.Positional, one_of(["plan"]), tyro.conf.arg(name="ACTION")]
    """plan: write the job down."""

    command: Annotated[str, tyro.conf.Positional, one_of(PLANNED), tyro.conf.arg(name="COMMAND")]
    """What is to be done: count-words or encode."""


@dataclass(frozen=True, kw_only=True)
class Plan(_Plan):
    """Write a job down: 'gristmill task plan encode' or 'gristmill task plan count-words'.

    They take the options of the command itself.
    """


@dataclass(frozen=True, kw_only=True)
class PlanEncode(encode.Command, _Plan):
    """Write down the job of encoding a corpus, so that 'gristmill task run' can do it in parts.

    The options are those of 'gristmill encode'. Called again for the same job, it shows what is left to do.
    """

    def run(self) -> int:
        from gristmill.executors import Local
        from gristmill.shards.steps import plan_encode

        self.check_executor()
        executor = Local(work_folder=self.work_folder, part_bytes=self.part_size)
        location = plan_encode(**self.arguments(), executor=executor).location
        print(_complete(self.output) if location is None else _overview(location, self._shown(location)))
        return 0

    def _shown(self, location: str) -> str:
        return self.output if self.work_folder is None else location


@dataclass(frozen=True, kw_only=True)
class PlanCountWords(count_words.Command, _Plan):
    """Write down the job of counting a corpus, so that 'gristmill task run' can do it in parts.

    The options are those of 'gristmill count-words'. Called again for the same job, it shows what is left to do.
    """

    def run(self) -> int:
        from gristmill.count.steps import plan_count
        from gristmill.executors import Local
        from gristmill.executors.work_folder import open_work_folder

        self.check_executor()
        arguments = self.arguments()
        if not isinstance(arguments["corpus"], FoundFiles):
            raise UsageError("the corpus is counted words (.gmw), which need no tasks. Name the files to count.")
        work_folder = self.work_folder or str(parts_beside(self.output))
        executor = Local(work_folder=work_folder, part_bytes=self.part_size)
        location = plan_count(**arguments, executor=executor, **self.read_options()).location
        output = {"output": os.path.abspath(self.output), "overwrite": self.overwrite}  # noqa: PTH100
        open_work_folder(location).write(OUTPUT_FILE, json.dumps(output).encode())
        print(_overview(location, str(self.output) if self.work_folder is None else location))
        return 0


@dataclass(frozen=True, kw_only=True)
class Run:
    """Perform tasks of a job that 'gristmill task plan' has written down.

    What is done already is not done again. In a job array of Slurm: gristmill task run FOLDER $SLURM_ARRAY_TASK_ID
    """

    action: Annotated[str, tyro.conf.Positional, one_of(["run"]), tyro.conf.arg(name="ACTION")]
    """run: perform tasks."""

    folder: Folder
    """The output of the job, or its work folder."""

    # Processes that `srun` starts together perform tasks of their own, so each reports its own mistakes.
    runs_alone: ClassVar[bool] = True

    numbers: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="N…", help_behavior_hint="")]
    """Which tasks, such as 7, or 0-9. Parts come first, then what is made of them."""

    def run(self) -> int:
        location = find_job(self.folder)
        if location is None:
            print(_complete(self.folder))
            return 0
        run_tasks(location, self.folder, parse_numbers(self.numbers))
        return 0


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Put together what the tasks of a job have made, and remove its work folder.

    Tasks of the second stage that are not done yet are done here. A part that is missing is an error.
    """

    action: Annotated[str, tyro.conf.Positional, one_of(["finish"]), tyro.conf.arg(name="ACTION")]
    """finish: put the result together."""

    folder: Folder
    """The output of the job, or its work folder."""

    def run(self) -> int:
        location = find_job(self.folder)
        if location is None:
            print(_complete(self.folder))
            return 0
        _check_parts(_Tasks(location), self.folder)
        print(_finish(location))
        return 0


@dataclass(frozen=True, kw_only=True)
class Status:
    """Show which tasks of a job are done, and which are missing."""

    action: Annotated[str, tyro.conf.Positional, one_of(["status"]), tyro.conf.arg(name="ACTION")]
    """status: show what is done."""

    folder: Folder
    """The output of the job, or its work folder."""

    def run(self) -> int:
        location = find_job(self.folder)
        print(_complete(self.folder) if location is None else _overview(location, self.folder))
        return 0


def command_class(arguments: Sequence[str]) -> type:
    """The class of the action that the arguments begin with."""
    words = list(arguments[:2])
    if words[:1] == ["plan"]:
        return {"encode": PlanEncode, "count-words": PlanCountWords}.get(words[-1].replace("_", "-"), Plan)
    return {"run": Run, "finish": Finish, "status": Status}.get(words[0] if words else "", Command)


def every_command() -> list[type]:
    """All classes, for shell completion."""
    return [Command, Plan, PlanEncode, PlanCountWords, Run, Finish, Status]


def parse_numbers(texts: Sequence[str]) -> list[int]:
    """The numbers of tasks, each once, in the order given.

    >>> parse_numbers(["7", "0-3", "2"])
    [7, 0, 1, 2, 3]
    """
    if not texts:
        raise UsageError("no task given. Name at least one number, such as 0, or a range, such as 0-9.")
    numbers: dict[int, None] = {}
    for text in texts:
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text, re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if last < first:
            raise UsageError(f"{text!r} is not the number of a task. Write a number such as 7, or a range such as 0-9.")
        numbers |= dict.fromkeys(range(first, last + 1))
    return list(numbers)


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
    if Path(text).is_file() or _has(open_work_folder(text), "manifest.json"):
        return None
    raise FileNotFoundError(errno.ENOENT, "No job here. Write one down with 'gristmill task plan'", text)


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


def _complete(shown: str) -> str:
    return f"  {shown} is complete: nothing is left to do."


class _Tasks:
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


def run_tasks(location: str, shown: str, numbers: Sequence[int]) -> None:
    """Perform tasks by number, in the order given, and print a line for each."""
    tasks = _Tasks(location)
    for number in numbers:
        if number < len(tasks.parts):
            print(_perform(tasks, tasks.parts[number]), flush=True)
            continue
        second = tasks.second()
        _check_parts(tasks, shown, f"task {number} needs all parts, and ")
        assert second is not None
        last = len(tasks.parts) + len(second) - 1
        if number > last:
            raise UsageError(f"there is no task {number}: the job has tasks 0 to {last}.")
        print(_perform(tasks, second[number - len(tasks.parts)]), flush=True)


def _perform(tasks: _Tasks, call: Call) -> str:
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


def _check_parts(tasks: _Tasks, shown: str, why: str = "") -> None:
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


def _overview(location: str, shown: str) -> str:
    """What is done of a job and what is to be done next."""
    tasks = _Tasks(location)
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


def _finish(location: str) -> str:
    """Finish a job whose parts are done; the summary of what it made."""
    from gristmill.executors.job import Job
    from gristmill.executors.work_folder import open_work_folder

    folder = open_work_folder(location)
    if Job.read(folder).kind == "encode":
        from gristmill.shards.steps import finish_encode

        return encode.summary(finish_encode(location))
    from gristmill.count.steps import finish_count_job

    start = time.perf_counter()
    output, overwrite = _read_output(folder)
    counted = finish_count_job(location, lambda words: words.save(output, overwrite=overwrite))
    remove_parts(output)
    return count_words.summary(counted, output, time.perf_counter() - start)


def _read_output(folder: WorkFolder) -> tuple[Path, bool]:
    from gristmill.errors import FormatError
    from gristmill.small_files import parse_json

    try:
        content: Any = parse_json(folder.read(OUTPUT_FILE, max_bytes=MAX_OUTPUT_BYTES), error=FormatError)
        return Path(content["output"]), content["overwrite"] is True
    except (FileNotFoundError, FormatError, TypeError, KeyError) as error:
        raise FormatError(
            f"{folder.location}: {OUTPUT_FILE}, which names the file to write, is missing or damaged. Run 'gristmill "
            f"task plan count-words' with the same options again: what is done stays."
        ) from error
