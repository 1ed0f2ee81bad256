"""Encoding in parts: the tasks of an executor produce the same files as a run without one, byte for byte.

| step | by | result |
|---|---|---|
| plan | `steps.plan_encode`, or `encode_corpus` itself | the job in the work folder: inputs, options, parts |
| encode | tasks, one per part | files of each part (`part_files.py`) |
| assemble | tasks, one per shard | shards under their final names, from ranges of parts (`assembly.py`) |
| finish | `steps.finish_encode`, or `encode_corpus` itself | tokenizer and manifest; the work folder is removed |

The work folder is `.parts` in the folder of shards, unless the executor names another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from gristmill.corpus import FoundFiles
from gristmill.errors import EmptyCorpusError, OptionError
from gristmill.executors import Executor, Local
from gristmill.executors.calls import Call, Outcome
from gristmill.executors.done import Done, read_all_done
from gristmill.executors.driver import run_stages
from gristmill.executors.executor import Workers, is_shared
from gristmill.executors.job import OpenJob, job_location, open_job
from gristmill.executors.watch import Watch
from gristmill.executors.work_folder import WorkFolder, in_parallel
from gristmill.profile import Stage, TaskTime
from gristmill.shards.assembly import Piece, ReadEnds, SplitPieces, join_parts, plan_shards
from gristmill.shards.encode_job import EncodeWork, job_of_plan, load_work, make_parts
from gristmill.shards.manifest import PARTS_FOLDER, Manifest, ShardEntry, Split
from gristmill.shards.names import sizes_of
from gristmill.shards.plan import Plan
from gristmill.shards.remote_output import AnyFolder
from gristmill.shards.state import Position, why_empty
from gristmill.shards.tasks import ASSEMBLE, ENCODE, read_ends, read_shard_plans, write_shard_plans

ENCODE_PART = "gristmill.shards.tasks:encode_part"
ASSEMBLE_SHARD = "gristmill.shards.tasks:assemble"


@dataclass(frozen=True, slots=True)
class EncodedParts:
    """Result of a run in parts."""

    manifest: Manifest
    is_resumed: bool
    num_workers: int
    tasks: tuple[TaskTime, ...]

    def stages(self) -> tuple[Stage, ...]:
        """Return the rows of a profile, with the total seconds of all workers."""
        splits = self.manifest.splits.values()
        num_bytes, num_tokens = sum(split.source_bytes for split in splits), sum(split.tokens for split in splits)
        return tuple(
            Stage(
                stage=stage,
                seconds=sum(task.seconds for task in self.tasks if task.stage == stage),
                num_bytes=num_bytes,
                num_tokens=num_tokens,
            )
            for stage in (ENCODE, ASSEMBLE)
        )


def check_plan(plan: Plan, executor: Executor, *, is_remote: bool) -> None:
    """Raise if tasks cannot do what was planned."""
    if isinstance(plan.source, FoundFiles):
        return
    if executor.runs_tasks or not is_remote:
        why = f"executor={executor.name!r} runs tasks that read files"
        advice = "Pass files, or leave out executor=, work_folder= and part_bytes=."
    else:
        why = "shards at a URL are written by tasks that read files"
        advice = "Pass files, or a local folder as out=."
    raise OptionError(f"{why}, but the corpus is an iterable of documents. {advice}")


def encode_in_parts(
    plan: Plan, folder: AnyFolder, executor: Executor, watch: Watch, *, overwrite: bool
) -> EncodedParts:
    """Run the remaining tasks of the job in a folder without finished shards."""
    if not is_shared(folder.location) and not isinstance(executor, Local):
        raise OptionError(
            f"{folder.location} is in the memory of this process, which the workers of executor={executor.name!r} "
            f"cannot access. Pass a folder or URL that all workers can access, or executor='local'."
        )
    folder.refuse_state()
    with open_encode_job(plan, folder, executor, overwrite=overwrite) as opened:
        with executor.open() as workers:
            manifest = run_job(load_work(opened.folder), folder, workers, watch)
            num_workers = workers.num_workers
        opened.folder.remove()
        return EncodedParts(manifest, opened.is_resumed, num_workers, tuple(watch.tasks))


def open_encode_job(
    plan: Plan, folder: AnyFolder, executor: Executor, *, overwrite: bool
) -> AbstractContextManager[OpenJob]:
    """Open the job in its work folder; an earlier run may have started it."""
    is_inside = executor.work_folder is None or folder.has_parts
    target = None if is_inside else folder.location
    job = job_of_plan(plan, name=folder.name, target=target, part_bytes=executor.part_bytes)
    location = job_location(
        job, work_folder=None if is_inside else executor.work_folder, default=f"{folder.location}/{PARTS_FOLDER}"
    )
    return open_job(location, job, partial(make_parts, plan, job), overwrite=overwrite)


def run_job(work: EncodeWork, folder: AnyFolder, workers: Workers, watch: Watch) -> Manifest:
    """Encode all parts, assemble all shards, and finish. Tasks that are done are not repeated."""

    def encode(_: list[Outcome]) -> list[Call]:
        return encode_calls(work)

    def assemble(outcomes: list[Outcome]) -> list[Call]:
        return assemble_calls(work, [outcome.done for outcome in outcomes])

    encoded, assembled = run_stages(workers, work.folder, [encode, assemble], watch)
    return _finish(work, folder, [one.done for one in encoded], [one.done for one in assembled])


def encode_calls(work: EncodeWork) -> list[Call]:
    """Return the calls of the first stage, one per part."""
    location = work.folder.location
    return [Call(ENCODE, ENCODE_PART, location, i, work.num_bytes(i)) for i in range(len(work.job.parts))]


def assemble_calls(work: EncodeWork, encoded: Sequence[Done]) -> list[Call]:
    """Return the calls of the second stage, one per shard, given the results of all parts."""
    joined = join_parts([done.result for done in encoded], work.splits)
    _check_not_empty(work, joined, encoded)
    shards = plan_shards(joined, work.layout, work.shard_tokens, _reader_of_ends(work.folder))
    write_shard_plans(work.folder, shards)
    size = work.dtype.itemsize
    calls = [
        Call(ASSEMBLE, ASSEMBLE_SHARD, work.folder.location, i, shard.num_tokens * size)
        for i, shard in enumerate(shards)
    ]
    _discard_lost_shards(work, calls)
    return calls


def _check_not_empty(work: EncodeWork, joined: dict[str, SplitPieces], encoded: Sequence[Done]) -> None:
    if any(pieces.num_documents for pieces in joined.values()):
        return
    skipped, num_nulls = _left_out(encoded)
    work.folder.remove()
    raise EmptyCorpusError(why_empty(Position(num_nulls=num_nulls, skipped=skipped)))


def _left_out(encoded: Sequence[Done]) -> tuple[dict[int, str], int]:
    """Return why inputs were skipped, and how many texts were null."""
    skipped = {index: reason for done in encoded for index, reason in done.result["skipped"]}
    return skipped, sum(done.result["num_nulls"] for done in encoded)


def _reader_of_ends(folder: WorkFolder) -> ReadEnds:
    @lru_cache(maxsize=1)  # several shards may end in one piece
    def read(piece: Piece) -> NDArray[np.int64]:
        return np.concatenate(list(read_ends(folder, piece)))

    return read


def _discard_lost_shards(work: EncodeWork, calls: Sequence[Call]) -> None:
    """Remove the records of shards that have disappeared or changed size, so that they are made again."""
    target = work.target

    def is_lost(done: Done | None) -> bool:
        sizes = [] if done is None else sizes_of(ShardEntry(**done.result), work.layout)
        return any(target.size(name) != size for name, size in sizes)

    names = [call.name for call in calls]
    lost = in_parallel(is_lost, read_all_done(work.folder, names))
    for name in itertools.compress(names, lost):
        work.folder.discard(f"{name}.ok")


def _finish(work: EncodeWork, folder: AnyFolder, encoded: Sequence[Done], assembled: Sequence[Done]) -> Manifest:
    """Write the tokenizer, and the manifest last."""
    folder.save_tokenizer(work.layout)
    joined = join_parts([done.result for done in encoded], work.splits)
    shards = [ShardEntry(**done.result) for done in assembled]
    plans = [plan.split for plan in read_shard_plans(work.folder)]
    splits = {
        split: Split(
            documents=pieces.num_documents,
            tokens=pieces.num_tokens,
            source_bytes=pieces.source_bytes,
            shards=tuple(shard for shard, of_split in zip(shards, plans, strict=True) if of_split == split),
        )
        for split, pieces in joined.items()
    }
    skipped, num_nulls = _left_out(encoded)
    manifest = folder.request.manifest(splits, skipped=skipped, num_nulls=num_nulls)
    folder.finish(manifest)
    return manifest
