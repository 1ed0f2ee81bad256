"""The tasks of a job that counts words. Each reads its input from the work folder and writes one file there.

| task | reads | writes |
|---|---|---|
| `count-NNNNN` | part N of the corpus | `count-NNNNN.runs`: its words in sorted runs, one per partition |
| `merge-NNNNN` | run N of all parts | `merge-NNNNN.words`: the words of partition N, in order of first occurrence |

Runs are sorted by the XXH64 of the words (seed 0). With n partitions, a word belongs to partition XXH64 * n // 2^64 on
every machine, so equal words of different parts are merged together. Positions in `count-NNNNN.runs` are relative to
the part, those in `merge-NNNNN.words` to the corpus. Rare words are dropped only in the merge, where their count is
complete.

A record of both files, with little-endian numbers:

    u64 × 2  the word. Up to 7 bytes: the bytes in text order with the length in the top byte of the first number, then
             0. Up to 15 bytes: the same over both numbers, with the length in the top byte of the second. More: 0, and
             2^63 + the length
    u64      its count
    u64      the position of its first occurrence
    u8 × n   the bytes of a word with more than 15 bytes

The `.ok` file has the end of each run, its checksum, and its numbers of words and bytes of words (`pack_runs`).
"""

from __future__ import annotations

import contextlib
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill._core import Counter, RunMerger, Xxh64, write_runs
from gristmill.corpus import FoundFiles, Reading
from gristmill.corpus.batches import Batch, Cut
from gristmill.corpus.files import are_plain_texts
from gristmill.corpus.stretches import Part, inputs_from_json, part_from_json, read_part
from gristmill.executors.calls import Check
from gristmill.executors.done import Done, read_done
from gristmill.executors.job import JOB_FILE, Job
from gristmill.executors.work_folder import DamagedPartError, FileEntry, WorkFolder
from gristmill.pretokenize.patterns import Pattern

# Memory for the counter of one worker. The interpreter and Ray's threads take as much again.
MEMORY_BYTES = 200_000_000
# Runs that are read at once. Each is an open file with a buffer of 64 KB.
MAX_FAN_IN = 128


@dataclass(frozen=True, slots=True)
class CountPlan:
    """A counting job in the form that its workers need."""

    files: FoundFiles
    parts: tuple[Any, ...]
    reading: Reading
    pattern: Pattern
    special_tokens: tuple[str, ...]
    min_frequency: int
    num_partitions: int
    memory_limit: int | None

    @classmethod
    def from_job(cls, job: Job, files: FoundFiles) -> CountPlan:
        """Return the plan of a job for these files."""
        options, settings = job.options, job.settings
        return cls(
            files=files,
            parts=tuple(job.parts),
            reading=Reading(**options["reading"]),
            pattern=Pattern.from_json(options["pattern"]),
            special_tokens=tuple(options["special_tokens"]),
            min_frequency=options["min_frequency"],
            num_partitions=settings["num_partitions"],
            memory_limit=settings["memory_limit"],
        )

    @property
    def memory_bytes(self) -> int:
        """Memory limit of a native counter or merger."""
        return self.memory_limit or MEMORY_BYTES

    def make_counter(self, check: Check | None = None) -> Counter:
        """Return the native counter of one worker. The pattern must be native."""
        return Counter(
            pattern=str(self.pattern),
            special_tokens=[special.encode() for special in self.special_tokens],
            num_threads=1,
            memory_limit=self.memory_bytes,
            spill_folder=tempfile.gettempdir(),
            num_partitions=self.num_partitions,
            on_progress=None if check is None else lambda *_: check(),
        )


class RunPlace(NamedTuple):
    """One run of a file, with its checksum and size."""

    task: str  # the task that wrote it
    begin: int
    end: int
    checksum: int
    num_words: int
    num_bytes: int  # of the words


def count_part(folder: WorkFolder, number: int, check: Check) -> Done:
    """Count one part of the corpus."""
    plan = open_plan(folder)
    with _create(folder, f"count-{number:05d}.runs") as output:
        if plan.pattern.name is not None:
            runs, result = _count_natively(plan, plan.parts[number], output.write, check)
        else:
            runs, result = _count_by_regex(plan, plan.parts[number], output.write, check)
    return Done((output.entry(),), {**result, "runs": pack_runs(runs)})


def merge_runs(folder: WorkFolder, number: int, check: Check) -> Done:
    """Merge the runs of one partition. A damaged run raises DamagedPartError, so that its part is counted again."""
    plan = open_plan(folder)
    runs = _runs_of_partition(folder, plan, number)
    merger = RunMerger(
        by_first=False,
        spill_folder=tempfile.gettempdir(),
        memory_limit=plan.memory_bytes,
        on_progress=lambda *_: check(),
    )
    with _create(folder, f"merge-{number:05d}.words") as output, added_runs(folder, merger, runs):
        entry, num_words = merger.write_by_first(plan.min_frequency, output.write)
    return Done((output.entry(),), {"num_words": num_words, "runs": pack_runs(entry)})


@contextlib.contextmanager
def added_runs(folder: WorkFolder, merger: RunMerger, runs: Iterable[tuple[RunPlace, int]]) -> Iterator[None]:
    """Add any number of runs, each with an offset for its positions, to a merger. Few are open at a time."""
    waiting = (run for run in runs if run[0].begin < run[0].end)
    group = list(islice(waiting, MAX_FAN_IN))
    while True:
        following = list(islice(waiting, MAX_FAN_IN))
        with contextlib.ExitStack() as files:
            for place, base in group:
                _add_run(folder, merger, files, place, base)
            if not following:
                yield
                return
            merger.reduce()
        group = following


def _add_run(folder: WorkFolder, merger: RunMerger, files: contextlib.ExitStack, place: RunPlace, base: int) -> None:
    name = file_of(place.task)
    size = place.end - place.begin
    try:
        file = files.enter_context(folder.as_local_file(name, place.begin, place.end))
        merger.add(
            name=place.task, path=file.path, begin=file.begin, end=file.begin + size, checksum=place.checksum, base=base
        )
    except FileNotFoundError as error:
        raise DamagedPartError(f"{name} is missing in {folder.location}", task=place.task) from error


def file_of(task: str) -> str:
    """Return the name of the file that a task writes.

    >>> file_of("merge-00003")
    'merge-00003.words'
    """
    return f"{task}.{'runs' if task.startswith('count') else 'words'}"


def open_plan(folder: WorkFolder) -> CountPlan:
    """Return the plan of the job in a folder, which is cached for the next task of the process."""
    return _read_plan(_ByLocation(folder), folder.read(JOB_FILE))


class _ByLocation:
    """A folder as the key of a cache."""

    def __init__(self, folder: WorkFolder) -> None:
        self.folder = folder

    def __hash__(self) -> int:
        return hash(self.folder.location)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByLocation) and self.folder.location == other.folder.location


@lru_cache(maxsize=2)
def _read_plan(key: _ByLocation, job_file: bytes) -> CountPlan:
    job = Job.read(key.folder)
    return CountPlan.from_job(job, inputs_from_json(job.inputs))


class _Output:
    """A file that is written sequentially, and its checksum."""

    def __init__(self, name: str, write: Callable[[bytes], object]) -> None:
        self._name, self._write = name, write
        self._num_bytes = 0
        self._checksum = Xxh64()

    def write(self, data: bytes) -> None:
        self._checksum.update(data)
        self._num_bytes += len(data)
        self._write(data)

    def entry(self) -> FileEntry:
        return FileEntry(self._name, self._num_bytes, self._checksum.hexdigest())


@contextlib.contextmanager
def _create(folder: WorkFolder, name: str) -> Iterator[_Output]:
    with folder.create(name, durable=False) as file:
        yield _Output(name, file.write)


def _count_natively(
    plan: CountPlan, stored_part: Any, write: Callable[[bytes], object], check: Check
) -> tuple[NDArray[np.uint64], dict[str, Any]]:
    part = part_from_json(stored_part)
    counter = plan.make_counter(check)
    skipped: dict[int, str] = {}
    if are_plain_texts(plan.files, plan.reading):
        counter.add_file_ranges(_file_ranges(plan.files, part))
    else:
        with contextlib.closing(_batches(plan, part, counter.last_cut, skipped)) as batches:
            for batch in batches:
                check()
                spans = batch.spans()
                if len(spans.begins):
                    counter.add_spans(spans.text, spans.begins, spans.ends)
    runs, figures = counter.finish_runs(write)
    result = {name: figures[name] for name in ("source_bytes", "num_pieces")}
    return runs, {**result, "skipped": list(skipped.items())}


def _file_ranges(files: FoundFiles, part: Part) -> list[tuple[str, int, int, int, int]]:
    ranges = []
    for stretch in part:
        input = files.inputs[stretch.input]
        end = input.num_bytes if stretch.end is None else stretch.end
        assert input.modified_ns is not None  # always known for a local file
        ranges.append((input.name, stretch.begin, end, input.num_bytes, input.modified_ns))
    return ranges


def _count_by_regex(
    plan: CountPlan, stored_part: Any, write: Callable[[bytes], object], check: Check
) -> tuple[NDArray[np.uint64], dict[str, Any]]:
    from gristmill.count.regex_counting import Specials, count_batches_by_regex  # not at the top: rarely needed

    skipped: dict[int, str] = {}
    cut = Specials(plan.special_tokens).last_cut
    with contextlib.closing(_batches(plan, part_from_json(stored_part), cut, skipped)) as batches:
        table = count_batches_by_regex(
            batches,
            regex=plan.pattern.regex,
            special_tokens=plan.special_tokens,
            memory_limit=plan.memory_limit,
            on_progress=lambda *_: check(),
        )
    runs = write_runs(table, plan.num_partitions, write)
    result = {"source_bytes": table.source_bytes, "num_pieces": table.total}
    return runs, {**result, "skipped": list(skipped.items())}


def _batches(plan: CountPlan, part: Part, cut: Cut, skipped: dict[int, str]) -> Generator[Batch, None, None]:
    """Yield the batches of a part. `skipped` receives the reasons for skipped inputs, by index."""

    def on_skip(index: int, error: Exception) -> None:
        skipped[index] = str(error)

    with contextlib.closing(read_part(plan.files, part, plan.reading, cut=cut, on_skip=on_skip)) as batches:
        for _, batch in batches:
            yield batch


def _runs_of_partition(folder: WorkFolder, plan: CountPlan, partition: int) -> list[tuple[RunPlace, int]]:
    """Return run `partition` of each part, with the position of the part in the corpus."""
    runs = []
    base = 0
    for number in range(len(plan.parts)):
        task = f"count-{number:05d}"
        done = read_done(folder, task)
        if done is None:
            raise DamagedPartError(f"{task}.ok is missing or damaged in {folder.location}", task=task)
        runs.append((unpack_run(task, done.result["runs"], partition), base))
        base += done.result["source_bytes"]
    return runs


def pack_runs(numbers: NDArray[np.uint64]) -> str:
    """Return (end, checksum, num_words, num_bytes) of each run as base64, a fifth of the size of a list."""
    return b64encode(numbers.astype("<u8").tobytes()).decode()


def unpack_run(task: str, packed: str, partition: int) -> RunPlace:
    """Return one run of a task.

    >>> unpack_run("count-00007", pack_runs(np.array([32, 5, 1, 3, 64, 6, 1, 4], np.uint64)), 1)
    RunPlace(task='count-00007', begin=32, end=64, checksum=6, num_words=1, num_bytes=4)
    """
    numbers = _unpack(packed)
    begin = int(numbers[partition - 1, 0]) if partition else 0
    return RunPlace(task, begin, *numbers[partition].tolist())


def run_sizes(packed: str) -> NDArray[np.int64]:
    """Return the size of each run of a task, in bytes.

    >>> run_sizes(pack_runs(np.array([32, 5, 1, 3, 96, 6, 1, 4], np.uint64))).tolist()
    [32, 64]
    """
    ends = _unpack(packed)[:, 0].astype(np.int64)
    ends[1:] -= ends[:-1].copy()
    return ends


def _unpack(packed: str) -> NDArray[np.uint64]:
    return np.frombuffer(b64decode(packed), "<u8").reshape(-1, 4)
