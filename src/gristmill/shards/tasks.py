"""The tasks of encoding in parts: `encode_part` (documents -> files of a part) and `assemble` (parts -> one shard).

Both depend only on the work folder and their number, and write the same bytes wherever and however often they run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus.stretches import read_part
from gristmill.errors import FormatError
from gristmill.executors.calls import Check
from gristmill.executors.done import Done
from gristmill.executors.work_folder import LocalWorkFolder, WorkFolder
from gristmill.publish import create_private
from gristmill.shards.assembly import HEAD, Piece, ShardPlan
from gristmill.shards.encode_job import EncodeWork, load_work
from gristmill.shards.jobs import Encoded, Ids, Job, JobEncoder
from gristmill.shards.layouts import Part
from gristmill.shards.layouts.layout import INT64
from gristmill.shards.manifest import ShardEntry
from gristmill.shards.part_files import PartWriter, create_checked, read_stretch
from gristmill.shards.writer import bytes_of

ENCODE = "encode"
ASSEMBLE = "assemble"
SHARDS_FILE = "shards.jsonl"


def task_name(part: int) -> str:
    """Return the name of the task that encodes a part."""
    return f"{ENCODE}-{part:05d}"


# Documents -> files of a part


def encode_part(folder: WorkFolder, number: int, check: Check) -> Done:
    """Encode one part of the corpus."""
    work = load_work(folder)
    part, skipped = work.part(number), dict[int, str]()

    def skip(index: int, error: Exception) -> None:
        skipped[index] = work.name_as_given(index, str(error))

    with (
        work.encoder() as encoder,
        closing(read_part(work.files, part, work.reading, cut=encoder.cut, on_skip=skip)) as batches,
        PartWriter(folder, task_name(number)) as files,
    ):
        encode = JobEncoder(encoder, work.val_fraction, work.request.options["seed"]).encode_job
        output = _PartOutput(files, work.dtype, begins_inside=part[0].begins_inside)
        for _, batch in batches:
            check()
            for encoded in encode(Job([batch])).encoded:
                output.write(encoded)
        files.finish()
    return Done(files.files, {**output.result(), "skipped": sorted(skipped.items())})


class _PartOutput:
    """Writes encoded batches to the files of a part, and counts tokens, documents and bytes."""

    def __init__(self, files: PartWriter, dtype: np.dtype[Any], *, begins_inside: bool) -> None:
        self._files, self._dtype = files, dtype
        self._open = HEAD if begins_inside else None  # stream of the document that the previous batch left open
        self._streams: dict[str, dict[str, int]] = {}
        self._num_nulls = 0

    def write(self, encoded: Encoded) -> None:
        for stream, ids in encoded.by_split(self._open):
            self._write_ids(stream, ids)
        self._open = encoded.open_split_after(self._open)
        self._num_nulls += encoded.num_nulls

    def _write_ids(self, stream: str, ids: Ids) -> None:
        counts = self._streams.setdefault(stream, {"tokens": 0, "documents": 0, "source_bytes": 0})
        self._files.write(f"{stream}.ids", bytes_of(ids.ids.astype(self._dtype, copy=False)))
        if stream != HEAD:  # it has one document, which ends at its end or in a later part
            self._files.write(f"{stream}.ends", bytes_of((ids.ends + counts["tokens"]).astype(INT64, copy=False)))
        counts["tokens"] += len(ids.ids)
        counts["documents"] += len(ids.ends)
        counts["source_bytes"] += ids.source_bytes

    def result(self) -> dict[str, Any]:
        return {"streams": self._streams, "left_open": self._open, "num_nulls": self._num_nulls}


# Files of parts -> one shard


def write_shard_plans(folder: WorkFolder, shards: list[ShardPlan]) -> None:
    """Write the plans of all shards, for `assemble`."""
    lines = "".join(json.dumps(shard.to_json()) + "\n" for shard in shards).encode()
    folder.write(SHARDS_FILE, b"%016x\n" % _core.xxh64(lines) + lines)


def read_shard_plans(folder: WorkFolder) -> list[ShardPlan]:
    """Return the plans that `write_shard_plans` wrote."""
    checksum, _, lines = folder.read(SHARDS_FILE).partition(b"\n")
    if checksum != b"%016x" % _core.xxh64(lines):
        raise FormatError(f"{folder.location}/{SHARDS_FILE}: damaged. Run the same command again to write it again.")
    return [ShardPlan.from_json(json.loads(line)) for line in lines.splitlines()]


def assemble(folder: WorkFolder, number: int, check: Check) -> Done:
    """Make one shard, and its index if the layout has one, and publish both."""
    work, shard = load_work(folder), read_shard_plans(folder)[number]
    layout, target = work.layout, work.target
    file = layout.token_file(work.name, shard.split, shard.number)
    index = layout.index_file(work.name, shard.split, shard.number)
    with ExitStack() as stack:
        needs_ends = layout.converts or index is not None
        ends_path = stack.enter_context(_temporary(folder)) if needs_ends else None
        num_documents = _copy_ends(folder, shard, ends_path, check)
        tokens_path = stack.enter_context(_temporary(folder)) if layout.converts else None
        if tokens_path is not None:
            with tokens_path.open("wb") as tokens:
                _copy_tokens(work, shard, tokens, check)
        part = Part(tokens_path or Path(), ends_path or Path(), shard.num_tokens, num_documents, work.dtype)
        index_checksum = None
        if index is not None:
            with create_checked(target, index) as output:
                layout.write_index(cast(BinaryIO, output), part)
            index_checksum = output.hexdigest()
        with create_checked(target, file) as output:
            if layout.converts:
                layout.write_tokens(cast(BinaryIO, output), part)
            else:
                output.write(layout.header(shard.num_tokens, work.dtype))
                _copy_tokens(work, shard, cast(BinaryIO, output), check)
    entry = ShardEntry(
        file=file,
        tokens=shard.num_tokens,
        documents=num_documents,
        bytes=output.num_bytes,
        xxh64=output.hexdigest(),
        index=index,
        index_xxh64=index_checksum,
    )
    return Done((), dataclasses.asdict(entry))


def _copy_tokens(work: EncodeWork, shard: ShardPlan, output: BinaryIO, check: Check) -> None:
    size = work.dtype.itemsize
    for piece in shard.pieces:
        blocks = read_stretch(
            work.folder,
            task_name(piece.part),
            f"{piece.stream}.ids",
            begin=max(shard.begin - piece.begin, 0) * size,
            end=min(shard.end - piece.begin, piece.num_tokens) * size,
            num_bytes=piece.num_tokens * size,
        )
        for block in blocks:
            check()
            output.write(block)


def _copy_ends(folder: WorkFolder, shard: ShardPlan, path: Path | None, check: Check) -> int:
    """Write the document ends of a shard, in tokens from its beginning; return the number of documents."""
    num_documents = 0
    with path.open("wb") if path is not None else contextlib.nullcontext() as output:
        for piece in shard.pieces:
            for ends in read_ends(folder, piece):
                check()
                chosen = shard.choose(ends + piece.begin) - shard.begin
                num_documents += len(chosen)
                if output is not None:
                    output.write(bytes_of(chosen))
    return num_documents


def read_ends(folder: WorkFolder, piece: Piece) -> Iterator[NDArray[np.int64]]:
    """Yield the document ends of a piece, in tokens from its beginning, in chunks."""
    if piece.stream == HEAD:
        yield np.full(piece.num_documents, piece.num_tokens, INT64)
        return
    num_bytes = piece.num_documents * INT64.itemsize
    stream = f"{piece.stream}.ends"
    for block in read_stretch(folder, task_name(piece.part), stream, begin=0, end=num_bytes, num_bytes=num_bytes):
        yield np.frombuffer(block, INT64).copy()


@contextlib.contextmanager
def _temporary(folder: WorkFolder) -> Iterator[Path]:
    """An empty, private temporary file, on the disk of the work folder if that is local; removed after the block."""
    place = folder.path if isinstance(folder, LocalWorkFolder) else Path(tempfile.gettempdir())
    path = place / f".assemble.tmp.{os.getpid()}.{int.from_bytes(os.urandom(6))}"
    try:
        os.close(create_private(path))
        yield path
    finally:
        path.unlink(missing_ok=True)
