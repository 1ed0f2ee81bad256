"""Counting in steps that the caller runs: plan, then tasks in any order and on any machine, then finish.

`gristmill task` uses it for Slurm and other schedulers that start the processes.

    planned = plan_count("tales/*.txt", executor=Local(work_folder="work"))
    …  # `perform` each of `count_calls`, then each of `merge_calls`, on any machine
    finish_count_job(planned.location, lambda words: words.save("words.gmw"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Unpack

from gristmill.corpus import Corpus, ReadOptions, open_corpus
from gristmill.count.counting import Counted, CountOptions, count_request, why_empty
from gristmill.count.distributed import count_calls, open_count_job, run_count
from gristmill.count.words import Words
from gristmill.errors import EmptyCorpusError, FormatError, OptionError
from gristmill.executors import Executor, check_executor
from gristmill.executors.done import read_done
from gristmill.executors.job import Job, reopen_job
from gristmill.executors.watch import Watch
from gristmill.executors.work_folder import WorkFolder
from gristmill.pretokenize.patterns import Pattern
from gristmill.progress import ProgressOption, open_progress

NUM_SHOWN = 10


@dataclass(frozen=True, slots=True)
class PlannedCount:
    """A job whose plan is stored in a work folder."""

    location: str  # of the work folder
    num_parts: int
    num_partitions: int
    is_resumed: bool  # the job already existed; finished tasks do not run again


def plan_count(
    corpus: Corpus,
    *,
    executor: Executor,
    pattern: str | None = None,
    special_tokens: Iterable[str] | None = None,
    min_frequency: int = 1,
    memory_limit: int | None = None,
    **reading: Unpack[ReadOptions],
) -> PlannedCount:
    """Store the plan of `count_words` with these arguments, without running its tasks.

    executor: only its `work_folder`, which is required, and `part_bytes` are used.
    """
    if isinstance(corpus, Words):
        raise OptionError("the corpus is a table of counted words. Pass the files to count.")
    options = CountOptions.checked(
        corpus,
        pattern=pattern,
        special_tokens=special_tokens,
        min_frequency=min_frequency,
        memory_limit=memory_limit,
        num_threads=None,
        reading=reading,
        executor=executor,
    )
    assert executor.work_folder is not None, "a temporary folder would not outlive this process"
    with open_count_job(count_request(open_corpus(corpus, options.reading), options), executor) as opened:
        job = opened.job
        return PlannedCount(
            opened.folder.location, len(job.parts), job.settings["num_partitions"], is_resumed=opened.is_resumed
        )


def finish_count_job(
    location: str,
    save: Callable[[Words], None],
    *,
    executor: Executor | str = "local",
    progress: ProgressOption = "auto",
) -> Counted:
    """Run the remaining merge tasks of a job whose parts are all counted, pass the words to `save`, remove the job.

    Raises FormatError with the numbers of the parts that are not counted. If `save` fails, the job stays.
    """
    chosen = check_executor(executor)
    with reopen_job(location) as opened:
        _refuse_missing(opened.folder, opened.job)
        with open_progress(progress) as on_progress, chosen.open() as workers:
            watch = Watch(on_progress)
            table, stages, _ = run_count(workers, opened, watch)
        options = opened.job.options
        words = Words(table, pattern=Pattern.from_json(options["pattern"]), special_tokens=options["special_tokens"])
        if len(words) > 0:
            save(words)
        opened.folder.remove()
    if len(words) == 0:
        raise EmptyCorpusError(why_empty(stages[0].num_bytes or 0, stages[0].num_words or 0, options["min_frequency"]))
    return Counted(words, stages, tuple(watch.tasks))


def _refuse_missing(folder: WorkFolder, job: Job) -> None:
    missing = [call.number for call in count_calls(job, folder.location) if read_done(folder, call.name) is None]
    if missing:
        some = ", ".join(map(str, missing[:NUM_SHOWN])) + ", …" * (len(missing) > NUM_SHOWN)
        raise FormatError(
            f"{folder.location}: {len(missing):,} of {len(job.parts):,} parts are not counted yet: {some}. Run their "
            f"tasks first."
        )
