"""Encoding in steps that the caller runs: plan, then tasks in any order and on any machine, then finish.

`gristmill task` uses it, for Slurm and other programs that start processes themselves.

    planned = plan_encode("tales/*.txt", "tokenizer.json", out="shards", executor=Local(part_bytes=10**8))
    for call in calls_of_encode(planned.location):  # each may run on another machine, with `perform`
        perform(call, check)
    run = finish_encode(planned.location)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Unpack

from gristmill.arguments import check_switch
from gristmill.corpus import Corpus
from gristmill.encode import AnyTokenizer
from gristmill.errors import ShardsFormatError
from gristmill.executors import Executor, check_executor
from gristmill.executors.calls import Call
from gristmill.executors.done import Done, read_all_done
from gristmill.executors.job import reopen_job
from gristmill.executors.watch import Watch
from gristmill.executors.work_folder import open_work_folder
from gristmill.profile import Clock
from gristmill.progress import ProgressOption, open_progress
from gristmill.shards.distributed import (
    EncodedParts,
    assemble_calls,
    check_plan,
    encode_calls,
    open_encode_job,
    run_job,
)
from gristmill.shards.encode_job import EncodeWork, load_work, parent_of
from gristmill.shards.manifest import NEW_FOLDER
from gristmill.shards.options import EncodeOptions
from gristmill.shards.plan import Plan
from gristmill.shards.remote_output import check_place, is_remote, open_folder, shown_place
from gristmill.shards.run import EncodeRun, run_of_parts

NUM_SHOWN = 10


@dataclass(frozen=True, slots=True)
class PlannedEncode:
    """A planned job."""

    location: str | None  # of the work folder; None if the shards are already finished
    num_parts: int
    is_resumed: bool  # whether the job existed; finished tasks do not run again


def plan_encode(
    corpus: Corpus,
    tokenizer: AnyTokenizer,
    *,
    out: str | os.PathLike[str],
    executor: Executor | str = "local",
    overwrite: bool = False,
    **options: Unpack[EncodeOptions],
) -> PlannedEncode:
    """Write the job of `encode_corpus` with these arguments to its work folder, and run none of its tasks.

    executor: only its `work_folder` and `part_bytes` are used.
    """
    chosen = check_executor(executor)
    out = check_place(out)
    plan = Plan.checked(corpus, tokenizer, out=out, num_threads=None, options=options)
    check_switch("overwrite", overwrite)
    check_plan(plan, chosen, is_remote=is_remote(out))
    with open_folder(out, plan.request, overwrite=overwrite, tokenizer=plan.tokenizer) as folder:
        if folder.finished is not None:
            return PlannedEncode(None, 0, True)
        folder.refuse_state()
        with open_encode_job(plan, folder, chosen, overwrite=overwrite) as opened:
            return PlannedEncode(opened.folder.location, len(opened.job.parts), opened.is_resumed)


def calls_of_encode(location: str) -> list[Call]:
    """Return all calls of a job: encoding parts and, once these are done, assembling shards."""
    work = load_work(open_work_folder(location))
    encoded = _read_encoded(work)
    missing = [i for i, done in enumerate(encoded) if done is None]
    return [*encode_calls(work), *([] if missing else assemble_calls(work, [done for done in encoded if done]))]


def _read_encoded(work: EncodeWork) -> list[Done | None]:
    return read_all_done(work.folder, [call.name for call in encode_calls(work)])


def finish_encode(location: str, *, executor: Executor | str = "local", progress: ProgressOption = "auto") -> EncodeRun:
    """Assemble the remaining shards of a job and finish it. All parts must be encoded.

    Raises `ShardsFormatError` with the numbers of missing parts: nothing is encoded here.
    """
    clock, chosen = Clock(), check_executor(executor)
    with reopen_job(location) as opened:
        work = load_work(opened.folder)
        _refuse_missing(work)
        out, is_new = _place_of(work)
        with open_folder(out, work.request, overwrite=is_new, tokenizer=work.tokenizer) as folder:
            if folder.finished is not None:  # an earlier run was killed right after finishing
                opened.folder.remove()
                return EncodeRun(location=shown_place(out), manifest=folder.finished, profile=None, resumed=False)
            with open_progress(progress) as on_progress, chosen.open() as workers:
                watch = Watch(on_progress)
                manifest = run_job(work, folder, workers, watch)
                done = EncodedParts(manifest, True, workers.num_workers, tuple(watch.tasks))
        opened.folder.remove()
    return run_of_parts(shown_place(out), done, clock)


def _refuse_missing(work: EncodeWork) -> None:
    missing = [i for i, done in enumerate(_read_encoded(work)) if done is None]
    if missing:
        some = ", ".join(map(str, missing[:NUM_SHOWN])) + ", …" * (len(missing) > NUM_SHOWN)
        raise ShardsFormatError(
            f"{work.folder.location}: {len(missing):,} of {len(work.job.parts):,} parts are not encoded: {some}. Run "
            f"these tasks, then finish."
        )


def _place_of(work: EncodeWork) -> tuple[str, bool]:
    """Return the folder of shards, and whether they replace finished ones."""
    place = work.target.location
    is_new = place.rpartition("/")[2] == NEW_FOLDER
    return (parent_of(place) if is_new else place), is_new
