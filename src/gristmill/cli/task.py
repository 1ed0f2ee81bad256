"""gristmill task: the tasks of a job one by one, for Slurm or whatever else starts programs on machines.

`task plan` writes the job down, `task run` performs tasks of it by their numbers, `task finish` puts together what they
have made, and `task status` shows what is missing. Each may run any number of times, anywhere, and again after a crash.
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
from gristmill.cli.values import UsageError, one_of
from gristmill.corpus import FoundFiles

if TYPE_CHECKING:
    from gristmill.executors.work_folder import WorkFolder

ACTIONS = ("plan", "run", "finish", "status")
PLANNED = ("count-words", "encode")
# Where the result of counting goes: a job of encoding knows its folder.
OUTPUT_FILE = "output.json"
MAX_OUTPUT_BYTES = 1 << 20

Folder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER|URL")]


@dataclass(frozen=True, kw_only=True)
class Command:
    """Run the tasks of a large job one by one, with Slurm or anything else that starts programs.

    gristmill task plan encode CORPUS… -t TOKENIZER -o FOLDER: write the job down

    gristmill task run FOLDER N…: perform tasks by number, on any machine

    gristmill task finish FOLDER: put together what they have made

    gristmill task status FOLDER: show what is done and what is missing
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Plan the job once.", "gristmill task plan encode corpus.txt -t tok.json -o shards"),
        ("Run tasks on any machine that sees the folder.", "gristmill task run shards 0-9"),
        ("List the missing tasks.", "gristmill task status shards"),
        ("Assemble the result after all parts are done.", "gristmill task finish shards"),
    )

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

    EXAMPLES: ClassVar[Examples] = (
        ("Plan the encoding of a corpus.", "gristmill task plan encode corpus.txt -t tok.json -o shards"),
        ("Plan the counting of a corpus.", "gristmill task plan count-words corpus.txt -o words.gmw"),
    )


@dataclass(frozen=True, kw_only=True)
class PlanEncode(encode.Command, _Plan):
    """Write down the job of encoding a corpus, so that 'gristmill task run' can do it in parts.

    The options are those of 'gristmill encode'. Called again for the same job, it shows what is left to do.
    """

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
        executor = Local(work_folder=self.work_folder, part_bytes=self.part_size)
        location = plan_encode(**self.arguments(), executor=executor).location
        print(complete(self.output) if location is None else overview(location, self._shown(location)))
        return 0

    def _shown(self, location: str) -> str:
        return self.output if self.work_folder is None else location


@dataclass(frozen=True, kw_only=True)
class PlanCountWords(count_words.Command, _Plan):
    """Write down the job of counting a corpus, so that 'gristmill task run' can do it in parts.

    The options are those of 'gristmill count-words'. Called again for the same job, it shows what is left to do.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Plan tasks of about 256 MB each.", "gristmill task plan count-words data -o words.gmw --part-size 256MB"),
    )

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
        print(overview(location, str(self.output) if self.work_folder is None else location))
        return 0


@dataclass(frozen=True, kw_only=True)
class Run:
    """Perform tasks of a job that 'gristmill task plan' has written down.

    What is done already is not done again. In a job array of Slurm: gristmill task run FOLDER $SLURM_ARRAY_TASK_ID
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Run ten tasks.", "gristmill task run shards 0-9"),
        ("Run three tasks.", "gristmill task run shards 3 17 42"),
    )

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
            print(complete(self.folder))
            return 0
        run_tasks(location, self.folder, parse_numbers(self.numbers))
        return 0


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Put together what the tasks of a job have made, and remove its work folder.

    Tasks of the second stage that are not done yet are done here. A part that is missing is an error.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Assemble the result and remove the work folder.", "gristmill task finish shards"),
    )

    action: Annotated[str, tyro.conf.Positional, one_of(["finish"]), tyro.conf.arg(name="ACTION")]
    """finish: put the result together."""

    folder: Folder
    """The output of the job, or its work folder."""

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
    """Show which tasks of a job are done, and which are missing."""

    EXAMPLES: ClassVar[Examples] = (("Show which tasks are done.", "gristmill task status shards"),)

    action: Annotated[str, tyro.conf.Positional, one_of(["status"]), tyro.conf.arg(name="ACTION")]
    """status: show what is done."""

    folder: Folder
    """The output of the job, or its work folder."""

    def run(self) -> int:
        location = find_job(self.folder)
        print(complete(self.folder) if location is None else overview(location, self.folder))
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
