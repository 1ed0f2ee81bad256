"""Files of a part: the output of one encode task, which other tasks assemble into shards.

A part has up to five files: the ids and the document ends of each split, and the ids of a document that began in an
earlier part ("head"), whose split only that part knows. After its data, a file has the XXH64 of each MiB of the data,
so a task that reads a range of a file verifies only that range.

Tasks do not wait until these files are on the disk, which would take a quarter of the time of a job: after a power
failure, the checksums show which parts are damaged, and those are encoded again. Shards are flushed before a manifest
names them.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus.threads import Crew
from gristmill.executors.work_folder import DamagedPartError, FileEntry, LocalWorkFolder, WorkFolder
from gristmill.shards.disk import sync_data

BLOCK_BYTES = 1 << 20
# Bytes between two flushes, as in `writer.py`.
FLUSHED_BYTES = 8 << 20
SUM = np.dtype("<u8")


class CheckedFile(io.RawIOBase):
    """Writes to a file of a folder, and keeps the checksum and the size of the data written so far.

    On a local disk, a thread flushes the file meanwhile, so that little is left to flush at the end.
    """

    def __init__(self, folder: WorkFolder, file: BinaryIO) -> None:
        self._file = file
        self._digest = _core.Xxh64()
        self._unflushed = 0
        self._is_local = isinstance(folder, LocalWorkFolder)
        self._flusher = Crew(sync_data, num_threads=1, name="flush")
        self._flushing: Future[None] | None = None
        self.num_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.num_bytes

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._digest.update(view)
        self.num_bytes += len(view)
        self._unflushed += len(view)
        if self._is_local and self._unflushed >= FLUSHED_BYTES and (self._flushing is None or self._flushing.done()):
            self._check_flush()
            self._file.flush()
            self._flushing = self._flusher.submit(self._file)
            self._unflushed = 0
        return len(view)

    def close(self) -> None:
        """Stop the thread, and raise a disk error that has not been raised yet. The file itself stays open."""
        if not self.closed:
            super().close()
            try:
                self._check_flush()  # first, because closing drops a flush that has not started
            finally:
                self._flusher.close()

    def hexdigest(self) -> str:
        """Return the XXH64 of all data written, 16 hexadecimal digits."""
        return self._digest.hexdigest()

    def _check_flush(self) -> None:
        if self._flushing is not None:
            flushing, self._flushing = self._flushing, None
            flushing.result()


@contextlib.contextmanager
def create_checked(folder: WorkFolder, name: str) -> Iterator[CheckedFile]:
    """Open a file for writing. It appears under its name, flushed to the disk, when the block ends without an error."""
    with folder.create(name) as file, contextlib.closing(CheckedFile(folder, file)) as checked:
        yield checked


class _Stream:
    """A file of a part that is being written. Its checksum is the checksum of its block checksums."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self._name, self._file = name, file
        self._num_bytes = 0
        self._sums: list[int] = []
        self._block = _core.Xxh64()
        self._in_block = 0

    def write(self, data: memoryview) -> None:
        self._file.write(data)
        self._num_bytes += len(data)
        while data:
            some = data[: BLOCK_BYTES - self._in_block]
            self._block.update(some)
            self._in_block += len(some)
            data = data[len(some) :]
            if self._in_block == BLOCK_BYTES:
                self._end_block()

    def _end_block(self) -> None:
        self._sums.append(int(self._block.hexdigest(), 16))
        self._block, self._in_block = _core.Xxh64(), 0

    def finish(self) -> FileEntry:
        if self._in_block:
            self._end_block()
        sums = np.array(self._sums, SUM).tobytes()
        self._file.write(sums)
        return FileEntry(self._name, self._num_bytes + len(sums), f"{_core.xxh64(sums):016x}")


class PartWriter:
    """Writes the files of a part, except empty ones. Use it in a `with` block."""

    def __init__(self, folder: WorkFolder, task: str) -> None:
        self._folder, self._task = folder, task
        self._stack = ExitStack()
        self._streams: dict[str, _Stream] = {}
        self.files: tuple[FileEntry, ...] = ()  # set by `finish`

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, stream: str, data: memoryview) -> None:
        """Append to one of the files, such as "train.ids"."""
        if not data:
            return
        if stream not in self._streams:
            name = file_name(self._task, stream)
            file = self._stack.enter_context(self._folder.create(name, durable=False))
            self._streams[stream] = _Stream(name, file)
        self._streams[stream].write(data)

    def finish(self) -> None:
        """Append the checksums. The files appear when the block ends."""
        self.files = tuple(stream.finish() for stream in self._streams.values())


def file_name(task: str, stream: str) -> str:
    """Return the name of a file of a part.

    >>> file_name("encode-00007", "train.ids")
    'encode-00007.train.ids'
    """
    return f"{task}.{stream}"


def read_stretch(
    folder: WorkFolder, task: str, stream: str, *, begin: int, end: int, num_bytes: int
) -> Iterator[memoryview]:
    """Yield bytes `begin` to `end` of the `num_bytes` of data of a file, in verified blocks.

    Raises DamagedPartError if the file is missing or a checksum does not match. Each block overwrites the previous one.
    """
    if begin >= end:
        return
    name = file_name(task, stream)
    first, last = begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)
    try:
        sums = _read_sums(folder, name, num_bytes + first * SUM.itemsize, last - first)
        to = min(last * BLOCK_BYTES, num_bytes)
        with folder.as_local_file(name, first * BLOCK_BYTES, to) as local, local.path.open("rb", buffering=0) as file:
            file.seek(local.begin)
            buffer = memoryview(bytearray(min(BLOCK_BYTES, to - first * BLOCK_BYTES)))  # one buffer: new memory is slow
            for number, expected in zip(range(first, last), sums.tolist(), strict=True):
                at = number * BLOCK_BYTES
                block = buffer[: min(BLOCK_BYTES, to - at)]
                _fill(file, block)
                if _core.xxh64(block) != expected:
                    raise EOFError
                yield block[max(begin - at, 0) : end - at]
    except (FileNotFoundError, EOFError):
        raise DamagedPartError(
            f"{folder.location}/{name}: the file is missing or damaged, so {task} must run again.", task=task
        ) from None


def _read_sums(folder: WorkFolder, name: str, begin: int, number: int) -> NDArray[np.uint64]:
    sums = np.empty(number, SUM)
    with folder.as_local_file(name, begin, begin + sums.nbytes) as local, local.path.open("rb", buffering=0) as file:
        file.seek(local.begin)
        _fill(file, sums.view(np.uint8).data)
    return sums


def _fill(file: io.RawIOBase, rest: memoryview) -> None:
    while rest:
        num_bytes = file.readinto(rest)
        if not num_bytes:
            raise EOFError
        rest = rest[num_bytes:]
