"""Files of a part: what one task has encoded, for the tasks that make shards of it.

A part has up to five files: the ids and the document ends of each split, and the ids of a document that began in an
earlier part ("head"), whose split only that part knows. After its data, a file has the XXH64 of every MiB of them. So a
task that reads a stretch of a file checks that stretch, and no more than that.

Nobody waits until these files are on the disk, which would take a quarter of the time of a job: after a power failure,
the checksums show what is missing, and those parts are encoded again. Shards are flushed before a manifest names them.
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
# How much is written before the disk begins to write it, as in `writer.py`.
FLUSHED_BYTES = 8 << 20
SUM = np.dtype("<u8")


class CheckedFile(io.RawIOBase):
    """Writes to a file of a folder, with the checksum and the size of what was written so far.

    On a disk of this machine, a thread flushes the file meanwhile: little is left to wait for in the end.
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
        """End the thread; an error of the disk that nobody has seen yet is raised. The file itself stays open."""
        if not self.closed:
            super().close()
            try:
                self._check_flush()  # first: the thread leaves undone what it has not begun
            finally:
                self._flusher.close()

    def hexdigest(self) -> str:
        """The XXH64 of all that was written, 16 hexadecimal digits."""
        return self._digest.hexdigest()

    def _check_flush(self) -> None:
        if self._flushing is not None:
            flushing, self._flushing = self._flushing, None
            flushing.result()


@contextlib.contextmanager
def create_checked(folder: WorkFolder, name: str) -> Iterator[CheckedFile]:
    """A file to write to, which is there under its name, on the disk, once the block has ended without an error."""
    with folder.create(name) as file, contextlib.closing(CheckedFile(folder, file)) as checked:
        yield checked


class _Stream:
    """A file of a part as it is written. Its checksum is that of the checksums of its blocks."""

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
    """Writes the files of a part; those that stay empty are not made. Use it in a `with` block."""

    def __init__(self, folder: WorkFolder, task: str) -> None:
        self._folder, self._task = folder, task
        self._stack = ExitStack()
        self._streams: dict[str, _Stream] = {}
        self.files: tuple[FileEntry, ...] = ()  # once `finish` was called

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, stream: str, data: memoryview) -> None:
        """Add to one of the files, such as "train.ids"."""
        if not data:
            return
        if stream not in self._streams:
            name = file_name(self._task, stream)
            file = self._stack.enter_context(self._folder.create(name, durable=False))
            self._streams[stream] = _Stream(name, file)
        self._streams[stream].write(data)

    def finish(self) -> None:
        """Add the checksums; the files are there once the block has ended."""
        self.files = tuple(stream.finish() for stream in self._streams.values())


def file_name(task: str, stream: str) -> str:
    """The name of a file of a part.

    >>> file_name("encode-00007", "train.ids")
    'encode-00007.train.ids'
    """
    return f"{task}.{stream}"


def read_stretch(
    folder: WorkFolder, task: str, stream: str, *, begin: int, end: int, num_bytes: int
) -> Iterator[memoryview]:
    """Bytes `begin` to `end` of the `num_bytes` of data of a file, in blocks; DamagedPartError where they are not.

    Nothing is given that is not what the task has written. The next block takes the place of the one before.
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
            buffer = memoryview(bytearray(min(BLOCK_BYTES, to - first * BLOCK_BYTES)))  # once: new memory is slow
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
