"""The pipeline of a run: inputs -> batches of documents -> ids by split.

Reader threads produce batches in corpus order. N threads find the documents of a batch and encode them, with the GIL
released. The results come back in order.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus import DocumentStream, batches, read_files
from gristmill.corpus.batches import Batch, Cut, Mark, Spans
from gristmill.corpus.threads import OnSkip, map_in_order
from gristmill.encode.document_encoder import DocumentEncoder
from gristmill.profile import Clock
from gristmill.shards.plan import Plan
from gristmill.shards.state import Position
from gristmill.trace import span

MAX_READERS = 4
MAX_BATCHES = 64  # per job: some inputs are empty, and their batches have a cost too


class Ids(NamedTuple):
    """Ids of one split, the ends of the documents that end among them, and the size of the texts."""

    ids: NDArray[Any]
    ends: NDArray[np.int64]
    source_bytes: int


@dataclass(slots=True)
class Job:
    """Batches that one thread encodes, in order."""

    batches: list[Batch] = field(default_factory=list)
    index: int = 0  # of the input of the last batch
    num_bytes: int = 0

    @property
    def end(self) -> Mark:
        """Mark in that input at which the next job begins."""
        return self.batches[-1].next_mark


@dataclass(slots=True)
class Encoded:
    """An encoded batch. `head` continues the document that an earlier batch left open, in that document's split."""

    head: Ids | None = None
    splits: dict[str, Ids] = field(default_factory=dict)
    left_open: str | None = None  # split of a document that begins here and continues in the next batch
    unfinished: bool = False  # whether the last document continues in the next batch
    num_nulls: int = 0

    def by_split(self, open_split: str | None) -> Iterator[tuple[str, Ids]]:
        """Yield (split, ids) in order. `open_split` is the split of the document that the previous batch left open."""
        if self.head is not None:
            assert open_split is not None, "the batch continues a document that has no beginning"
            yield open_split, self.head
        yield from self.splits.items()

    def open_split_after(self, open_split: str | None) -> str | None:
        """Return the split of the document that this batch leaves open, or None; `open_split` as in `by_split`."""
        if self.left_open is not None:
            return self.left_open
        return open_split if self.unfinished else None


@dataclass(slots=True)
class EncodedJob:
    """An encoded job, and how long finding the documents and encoding them took."""

    job: Job
    encoded: list[Encoded]
    find_seconds: float
    encode_seconds: float


def gather_jobs(numbered: Iterable[tuple[int, Batch]]) -> Generator[Job]:
    """Yield jobs of batches, each of which comes with the index of its input. Small inputs are gathered into one job.

    This keeps the cost of Python per job small compared with the encoding, for inputs of any size.
    """
    job = Job()
    for index, batch in numbered:
        job.batches.append(batch)
        job.index = index
        job.num_bytes += batch.num_bytes
        if job.num_bytes >= batches.BATCH_BYTES // 2 or len(job.batches) == MAX_BATCHES:
            yield job
            job = Job()
    if job.batches:
        yield job


def encoded_jobs(plan: Plan, position: Position, clock: Clock, on_skip: OnSkip) -> Generator[EncodedJob]:
    """Yield the encoded jobs of the corpus from `position`, in order. Threads read and encode ahead of the caller.

    on_skip: called with the index and the error of an input that is skipped.
    """
    with (
        plan.encoder as encoder,
        closing(_read(plan, position, encoder.cut, on_skip)) as batches,
        closing(gather_jobs(_timed(batches, clock))) as gathered,
    ):
        work = JobEncoder(encoder, plan.val_fraction, plan.seed).encode_job
        encoding = map_in_order(work, gathered, num_threads=plan.num_threads, cancel=encoder.cancel, name="encode")
        with closing(encoding) as jobs:
            for done in jobs:
                clock.seconds["find"] += done.find_seconds
                clock.seconds["encode"] += done.encode_seconds
                yield done


def _read(plan: Plan, position: Position, cut: Cut, on_skip: OnSkip) -> Generator[tuple[int, Batch]]:
    if isinstance(plan.source, DocumentStream):
        return ((0, batch) for batch in plan.source.read_batches())
    return read_files(
        plan.source,
        plan.reading,
        cut=cut,
        first=position.index,
        mark=position.mark,
        num_readers=min(plan.num_threads, MAX_READERS),
        on_skip=on_skip,
    )


def _timed(batches: Iterator[tuple[int, Batch]], clock: Clock) -> Iterator[tuple[int, Batch]]:
    while True:
        with clock.measure("read"):
            item = next(batches, None)
        if item is None:
            return
        yield item


@dataclass(frozen=True, slots=True)
class JobEncoder:
    """Encodes jobs. Thread-safe."""

    encoder: DocumentEncoder
    val_fraction: float
    seed: int

    def encode_job(self, job: Job) -> EncodedJob:
        """Return the ids of all batches of the job."""
        done = EncodedJob(job, [], 0.0, 0.0)
        for batch in job.batches:
            began = time.perf_counter()
            with span("find documents", bytes=batch.num_bytes):
                spans = batch.spans()
            found = time.perf_counter()
            with span("encode", bytes=batch.num_bytes):
                ids, ends = self.encoder.encode(spans)
                is_val = self._is_val(spans)
                sizes = spans.ends - spans.begins
                encoded = _assigned(ids, ends, sizes, is_val, continued=spans.continued, unfinished=spans.unfinished)
            encoded.num_nulls = spans.num_nulls
            done.encoded.append(encoded)
            done.find_seconds += found - began
            done.encode_seconds += time.perf_counter() - found
        return done

    def _is_val(self, spans: Spans) -> NDArray[np.bool_] | None:
        """Which documents are for validation, by a hash of how they begin, so that duplicates get the same split."""
        if not self.val_fraction:
            return None
        hashes = _core.hash_spans(spans.text, spans.begins, spans.ends, self.seed, batches.MIN_STRETCH_BYTES)
        return hashes < np.uint64(self.val_fraction * 2**64)


def _assigned(
    ids: NDArray[Any],
    ends: NDArray[np.int64],
    sizes: NDArray[np.int64],
    is_val: NDArray[np.bool_] | None,
    *,
    continued: bool,
    unfinished: bool,
) -> Encoded:
    """Assign the ids to splits."""
    encoded = Encoded(unfinished=unfinished)
    first = 0
    if continued and len(ends):
        is_whole_batch = unfinished and len(ends) == 1
        encoded.head = Ids(ids[: ends[0]], ends[:0] if is_whole_batch else ends[:1], int(sizes[0]))
        first = 1
    num_ended = len(ends) - unfinished
    if is_val is None:
        begin = int(ends[first - 1]) if first else 0
        if first < len(ends):
            encoded.splits["train"] = Ids(ids[begin:], ends[first:num_ended] - begin, int(sizes[first:].sum()))
            encoded.left_open = "train" if unfinished else None
        return encoded
    for split, wanted in (("train", ~is_val), ("val", is_val)):
        chosen = np.flatnonzero(wanted[first:]) + first
        if len(chosen):
            begins = np.where(chosen > 0, ends[chosen - 1], 0)
            own_ends = np.cumsum(ends[chosen] - begins)
            continues = unfinished and chosen[-1] == len(ends) - 1
            encoded.splits[split] = Ids(
                _gathered(ids, begins, ends[chosen]), own_ends[: len(own_ends) - continues], int(sizes[chosen].sum())
            )
            if continues:
                encoded.left_open = split
    return encoded


def _gathered(ids: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any]:
    """Concatenate ranges of `ids`; adjacent ranges are copied as one."""
    apart = np.flatnonzero(begins[1:] != ends[:-1]) + 1
    starts, stops = begins[np.r_[0, apart]], ends[np.r_[apart - 1, len(ends) - 1]]
    return np.concatenate([ids[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)])
