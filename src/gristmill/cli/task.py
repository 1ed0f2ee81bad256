"""gristmill task: run the tasks of a job separately, with Slurm or another scheduler.

`task plan` saves the plan of the job, `task run` runs tasks by number, `task finish` assembles their results, and
`task status` shows which tasks are missing. Each can run any number of times, on any machine, and again after a crash.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from gristmill.cli import count_words, encode
from gristmill.cli.examples import Examples
from gristmill.cli.executors import parts_beside, remove_parts
from gristmill.cli.jobs import JobTasks, check_parts, complete, find_job, overview, parse_numbers, run_tasks
from gristmill.cli.options import ProfileOut
from gristmill.cli.values import UsageError, one_of
from gristmill.corpus import FoundFiles

if TYPE_CHECKING:
    from gristmill.executors.work_folder import WorkFolder

ACTIONS = ("plan", "run", "finish", "status")
PLANNED = ("count-words", "encode")
# Stores the output file of a count job. An encode job stores its output folder itself.
OUTPUT_FILE = "output.json"
MAX_OUTPUT_BYTES = 1 << 20

Folder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER|URL")]


@dataclass(frozen=True, kw_only=True)
class Command:
    """Run a large job as separate tasks, with Slurm or another scheduler.

    plan saves the plan of the job, run runs tasks by number on any machine, status shows which tasks are missing, and
    finish assembles the result.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Plan the job once.", "gristmill task plan encode corpus.txt -t tok.json -o shards"),
        ("Run tasks on any machine that sees the folder.", "gristmill task run shards 0-9"),
        ("List the missing tasks.", "gristmill task status shards"),
        ("Assemble the result after all parts are done.", "gristmill task finish shards"),
    )

    action: Annotated[str, tyro.conf.Positional, one_of(ACTIONS), tyro.conf.arg(name="ACTION")]
    """plan, run, finish or status. See 'gristmill task ACTION --help'."""


@dataclass(frozen=True, kw_only=True)
class _Plan:
    action: Annotated[str, tyro.conf.Positional, one_of(["plan"]), tyro.conf.arg(name="ACTION")]
    """plan: save the plan of a job."""

    command: Annotated[str, tyro.conf.Positional, one_of(PLANNED), tyro.conf.arg(name="COMMAND")]
    """Command to plan: count-words or encode."""


@dataclass(frozen=True, kw_only=True)
class Plan(_Plan):
    """Save the plan of a job: 'gristmill task plan encode' or 'gristmill task plan count-words'.

    The options are those of 'gristmill encode' and 'gristmill count-words'.
    """

    ACTION: ClassVar[tuple[str, ...]] = ("plan",)
    EXAMPLES: ClassVar[Examples] = (
        ("Plan the encoding of a corpus.", "gristmill task plan encode corpus.txt -t tok.json -o shards"),
        ("Plan the counting of a corpus.", "gristmill task plan count-words corpus.txt -o words.gmw"),
    )


@dataclass(frozen=True, kw_only=True)
class PlanEncode(encode.Command, _Plan):
    """Save the plan for encoding a corpus, for 'gristmill task run'.

    The options are those of 'gristmill encode'. For a job that is already planned, shows the missing tasks.
    """

    ACTION: ClassVar[tuple[str, ...]] = ("plan", "encode")
    EXAMPLES: ClassVar[Examples] = (
        ("Plan tasks of about 256 MB each.", "gristmill task plan encode data -t tok.json -o shards --part-size 256MB"),
        (
            "Keep the parts in a folder that all machines share.",
            "gristmill task plan encode data -t tok.json -o out --work-folder /shared/work",
        ),
    )

    def run(self) -> int:
        from gristmill.executors import Local
        from gristmill.shards.steps import plan_encode

        self.check_executor()
        if self.report is not None:
            raise UsageError(
                "--report needs a run, but this command only plans one. Omit --report. After 'gristmill task finish', "
                "run 'gristmill report' on the output."
            )
        executor = Local(work_folder=self.work_folder, part_bytes=self.part_size)
        location = plan_encode(**self.arguments(), executor=executor).location
        print(complete(self.output) if location is None else overview(location, self._shown(location)))
        return 0

    def _shown(self, location: str) -> str:
        return self.output if self.work_folder is None else location


@dataclass(frozen=True, kw_only=True)
class PlanCountWords(count_words.Command, _Plan):
    """Save the plan for counting the words of a corpus, for 'gristmill task run'.

    The options are those of 'gristmill count-words'. For a job that is already planned, shows the missing tasks.
    """

    ACTION: ClassVar[tuple[str, ...]] = ("plan", "count-words")
    EXAMPLES: ClassVar[Examples] = (
        ("Plan tasks of about 256 MB each.", "gristmill task plan count-words data -o words.gmw --part-size 256MB"),
    )

    def run(self) -> int:
        from gristmill.count.steps import plan_count
        from gristmill.executors import Local
        from gristmill.executors.work_folder import open_work_folder

        self.check_executor()
        if self.device not in ("auto", "cpu"):
            raise UsageError(f"--device {self.device} does not apply: tasks count on the CPU. Omit --device.")
        arguments = self.arguments()
        if not isinstance(arguments["corpus"], FoundFiles):
            raise UsageError("the corpus is word counts (.gmw), which need no tasks. Pass the files to count.")
        work_folder = self.work_folder or str(parts_beside(self.output))
        executor = Local(work_folder=work_folder, part_bytes=self.part_size)
        location = plan_count(**arguments, executor=executor, **self.read_options()).location
        output = {"output": os.path.abspath(self.output), "overwrite": self.overwrite}  # noqa: PTH100
        open_work_folder(location).write(OUTPUT_FILE, json.dumps(output).encode())
        print(overview(location, str(self.output) if self.work_folder is None else location))
        return 0


@dataclass(frozen=True, kw_only=True)
class Run:
    """Run tasks of a job that 'gristmill task plan' has planned.

    Finished tasks are not run again. In a Slurm job array: gristmill task run FOLDER $SLURM_ARRAY_TASK_ID
    """

    ACTION: ClassVar[tuple[str, ...]] = ("run",)
    EXAMPLES: ClassVar[Examples] = (
        ("Run ten tasks.", "gristmill task run shards 0-9"),
        ("Run three tasks.", "gristmill task run shards 3 17 42"),
    )

    action: Annotated[str, tyro.conf.Positional, one_of(["run"]), tyro.conf.arg(name="ACTION")]
    """run: run tasks."""

    folder: Folder
    """Output of the job, or its work folder."""

    # Processes started together by `srun` run different tasks, so each reports its own errors.
    runs_alone: ClassVar[bool] = True

    numbers: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="N…", help_behavior_hint="")]
    """Task numbers, such as 7 or 0-9. Parts come first, then the tasks that combine them."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        location = find_job(self.folder)
        if location is None:
            print(complete(self.folder))
            return 0
        run_tasks(location, self.folder, parse_numbers(self.numbers))
        return 0


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Assemble the result of a job and remove its work folder.

    Runs the missing tasks of the second stage. A missing part is an error.
    """

    ACTION: ClassVar[tuple[str, ...]] = ("finish",)
    EXAMPLES: ClassVar[Examples] = (
        ("Assemble the result and remove the work folder.", "gristmill task finish shards"),
    )

    action: Annotated[str, tyro.conf.Positional, one_of(["finish"]), tyro.conf.arg(name="ACTION")]
    """finish: assemble the result."""

    folder: Folder
    """Output of the job, or its work folder."""

    profile_out: ProfileOut = None

    def run(self) -> int:
        location = find_job(self.folder)
        if location is None:
            print(complete(self.folder))
            return 0
        check_parts(JobTasks(location), self.folder)
        print(_finish(location))
        return 0


@dataclass(frozen=True, kw_only=True)
class Status:
    """Show which tasks of a job are done and which are missing."""

    ACTION: ClassVar[tuple[str, ...]] = ("status",)
    EXAMPLES: ClassVar[Examples] = (("Show which tasks are done.", "gristmill task status shards"),)

    action: Annotated[str, tyro.conf.Positional, one_of(["status"]), tyro.conf.arg(name="ACTION")]
    """status: show done and missing tasks."""

    folder: Folder
    """Output of the job, or its work folder."""

    def run(self) -> int:
        location = find_job(self.folder)
        print(complete(self.folder) if location is None else overview(location, self.folder))
        return 0


def command_class(arguments: Sequence[str]) -> type:
    """Return the class of the action named by the first arguments."""
    words = list(arguments[:2])
    if words[:1] == ["plan"]:
        return {"encode": PlanEncode, "count-words": PlanCountWords}.get(words[-1].replace("_", "-"), Plan)
    return {"run": Run, "finish": Finish, "status": Status}.get(words[0] if words else "", Command)


def every_command() -> list[type]:
    """Return all classes, for shell completion."""
    return [Command, Plan, PlanEncode, PlanCountWords, Run, Finish, Status]


def _finish(location: str) -> str:
    """Finish a job whose parts are done, and return its summary."""
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
            f"{folder.location}: {OUTPUT_FILE}, which stores the output file, is missing or damaged. Run 'gristmill "
            f"task plan count-words' again with the same options; finished tasks are kept."
        ) from error
