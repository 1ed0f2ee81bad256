"""Writer of the shards of one split: tokens are appended to a part, and a full part is published as a shard.

A part is a hidden file that only this module uses. `checkpoint` flushes everything written so far and returns its
state. A writer that is given this state continues from there and discards anything written later. So a run that was
killed can resume, and it publishes the same bytes as an uninterrupted run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus.threads import Crew
from gristmill.errors import ShardsFormatError
from gristmill.publish import flush_folder, publish, set_mode, usual_mode
from gristmill.shards.disk import create_file, open_file, sync, sync_data, write_all
from gristmill.shards.layouts.layout import INT64, Layout, Part, read_chunks
from gristmill.shards.manifest import ShardEntry, Split
from gristmill.shards.state import SplitState

# Bytes between two flushes, so that little is left to flush when a shard is complete.
FLUSHED_BYTES = 8 << 20
CHUNK_BYTES = 4 << 20


class SplitWriter:
    """Writes the tokens of one split. `num_tokens` and `num_documents` are totals of the shards and the part."""

    def __init__(
        self,
        folder: Path,
        split: str,
        *,
        name: str,
        layout: Layout,
        dtype: np.dtype[Any],
        shard_tokens: int | None,
        state: SplitState,
    ) -> None:
        self._folder, self._split, self._name = folder, split, name
        self._layout, self._dtype, self._shard_tokens = layout, dtype, shard_tokens
        self._state = state
        self.num_tokens = sum(shard.tokens for shard in state.shards) + state.part_tokens
        self.num_documents = sum(shard.documents for shard in state.shards) + state.part_documents
        self._outdated: list[Path] = []  # files that the last checkpoint may need and the next one will not
        self._part: _PartFiles | None = None
        if state.part_tokens or state.part_documents:
            self._part = self._reopened_part()

    def write(self, ids: NDArray[Any], ends: NDArray[np.int64], *, source_bytes: int) -> None:
        """Append ids, and the ends of the documents in them."""
        ids = ids.astype(self._dtype, copy=False)
        self._state.source_bytes += source_bytes
        self.num_tokens += len(ids)
        self.num_documents += len(ends)
        at = 0
        while at < len(ids) or len(ends):
            # A full shard is closed only when more tokens follow: documents without tokens may still follow, and they
            # belong to this shard, however the text was cut into batches.
            num_empty = int(np.searchsorted(ends, at, side="right"))
            if num_empty:
                self._append(ids[at:at], ends[:num_empty] - at)
                ends = ends[num_empty:]
            if at < len(ids) and self._is_full():
                self.publish_part()
            to = self._next_stop(at, len(ids), ends)
            num_ended = int(np.searchsorted(ends, to, side="right"))
            self._append(ids[at:to], ends[:num_ended] - at)
            at, ends = to, ends[num_ended:]

    def _is_full(self) -> bool:
        state = self._state
        return (
            self._shard_tokens is not None
            and state.part_tokens >= self._shard_tokens
            and (self._layout.splits_documents or state.part_end == state.part_tokens)
        )

    def _next_stop(self, at: int, size: int, ends: NDArray[np.int64]) -> int:
        if self._shard_tokens is None:
            return size
        stop = at + self._shard_tokens - self._state.part_tokens
        if not self._layout.splits_documents:
            following = int(np.searchsorted(ends, stop, side="left"))
            stop = int(ends[following]) if following < len(ends) else size
        return min(max(stop, at), size)

    def _append(self, ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        if self._part is None:
            self._part = _PartFiles.create(*self._part_paths(), self._layout.header_bytes)
        ends = ends + self._state.part_tokens
        self._part.append(ids, ends)
        if len(ends):
            self._state.part_end = int(ends[-1])
        self._state.part_tokens += len(ids)
        self._state.part_documents += len(ends)

    def publish_part(self) -> None:
        """Publish the part as a shard, unless it is empty."""
        if self._part is None:
            return
        state, number = self._state, len(self._state.shards)
        tokens, ends = self._part_paths()
        part = Part(tokens, ends, state.part_tokens, state.part_documents, self._dtype)
        file = self._layout.token_file(self._name, self._split, number)
        index = self._layout.index_file(self._name, self._split, number)
        if self._layout.converts:
            self._part.flush()
            checksum = self._publish_converted(file, part)
            self._outdated.append(tokens)
        else:
            checksum = self._part.finish(self._layout.header(part.num_tokens, self._dtype))
        index_checksum = self._publish_index(index, part) if index is not None else None
        self._part.close()
        self._part = None
        if not self._layout.converts:
            tokens.replace(self._folder / file)
            flush_folder(self._folder)
        self._outdated.append(ends)
        num_bytes = (self._folder / file).stat().st_size
        state.shards.append(
            ShardEntry(
                file=file,
                tokens=part.num_tokens,
                documents=part.num_documents,
                bytes=num_bytes,
                xxh64=checksum,
                index=index,
                index_xxh64=index_checksum,
            )
        )
        state.part_tokens = state.part_documents = state.part_end = 0

    def _publish_converted(self, file: str, part: Part) -> str:
        with publish(self._folder / file) as output:
            self._layout.write_tokens(output, part)
        return hash_file(self._folder / file)

    def _publish_index(self, index: str, part: Part) -> str:
        with publish(self._folder / index) as output:
            self._layout.write_index(output, part)
        return hash_file(self._folder / index)

    def checkpoint(self) -> dict[str, Any]:
        """Flush everything to the disk, and return the state from which a writer can continue."""
        if self._part is not None:
            self._part.flush()
        return self._state.to_json()

    def part_sizes(self) -> dict[str, int]:
        """Return the files that a writer needs to continue from the last checkpoint, with their sizes at that time."""
        if self._part is None:
            return {}
        tokens, ends = self._part_paths()
        return {
            tokens.name: self._layout.header_bytes + self._state.part_tokens * self._dtype.itemsize,
            ends.name: self._state.part_documents * INT64.itemsize,
        }

    def forget_outdated(self) -> None:
        """Remove files that only an earlier checkpoint needed. Call it when the new checkpoint is on the disk."""
        for path in self._outdated:
            path.unlink(missing_ok=True)
        self._outdated.clear()

    @property
    def shards(self) -> Sequence[ShardEntry]:
        """The published shards, in order."""
        return self._state.shards

    @property
    def num_published(self) -> int:
        """Number of published shards."""
        return len(self._state.shards)

    def finish(self) -> Split:
        """Publish the remaining tokens, and return the split."""
        self.publish_part()
        return self._state.split()

    def close(self) -> None:
        """Close the files of the part, which stay as they are."""
        if self._part is not None:
            self._part.close()
            self._part = None

    def _part_paths(self) -> tuple[Path, Path]:
        file = self._layout.token_file(self._name, self._split, len(self._state.shards))
        return self._folder / f".{file}.part", self._folder / f".{file}.ends.part"

    def _reopened_part(self) -> _PartFiles:
        tokens, ends = self._part_paths()
        published = self._folder / self._layout.token_file(self._name, self._split, len(self._state.shards))
        if not tokens.exists() and published.exists() and not self._layout.converts:
            published.replace(tokens)  # published, but the run was killed before it recorded that
        return _PartFiles.reopen(
            tokens,
            ends,
            self._layout.header_bytes,
            num_bytes=self._state.part_tokens * self._dtype.itemsize,
            num_documents=self._state.part_documents,
            last_end=min(self._state.part_end, self._state.part_tokens),
        )


class _PartFiles:
    """The two files of a part, with the checksum of the tokens so far and a thread that flushes them to the disk."""

    def __init__(self, tokens: BinaryIO, ends: BinaryIO, header_bytes: int) -> None:
        self._tokens, self._ends, self._header_bytes = tokens, ends, header_bytes
        self._checksum = _core.Xxh64()
        self._unflushed = 0
        self._flusher = Crew(sync_data, num_threads=1, name="flush")
        self._flushing: Future[None] | None = None

    @classmethod
    def create(cls, tokens: Path, ends: Path, header_bytes: int) -> _PartFiles:
        part = cls(create_file(tokens), create_file(ends), header_bytes)
        part._write(part._tokens, bytes(header_bytes))
        return part

    @classmethod
    def reopen(
        cls, tokens: Path, ends: Path, header_bytes: int, *, num_bytes: int, num_documents: int, last_end: int
    ) -> _PartFiles:
        """Reopen a part at an earlier size; anything written later is cut off.

        The ends of its documents must ascend up to `last_end`: from others, an index of wrong places would be written.
        """
        part = cls(_open_part(tokens), _open_part(ends), header_bytes)
        try:
            part._cut_off(part._tokens, header_bytes + num_bytes)
            part._cut_off(part._ends, num_documents * INT64.itemsize)
            _check_ends(ends, last_end)
        except BaseException:
            part.close()
            raise
        if not header_bytes:
            _hash_rest(part._tokens, part._checksum)
        part._tokens.seek(0, os.SEEK_END)
        part._ends.seek(0, os.SEEK_END)
        return part

    @staticmethod
    def _cut_off(file: BinaryIO, size: int) -> None:
        if os.fstat(file.fileno()).st_size < size:
            raise _lost_part(file.name)
        os.ftruncate(file.fileno(), size)

    def append(self, ids: NDArray[Any], ends: NDArray[np.int64]) -> None:
        data = bytes_of(ids)
        self._write(self._tokens, data)
        if not self._header_bytes:
            self._checksum.update(data)
        if len(ends):
            self._write(self._ends, bytes_of(ends.astype(INT64, copy=False)))
        self._unflushed += len(data)
        if self._unflushed >= FLUSHED_BYTES and (self._flushing is None or self._flushing.done()):
            self._check_flush()
            self._flushing = self._flusher.submit(self._tokens)
            self._unflushed = 0

    def flush(self) -> None:
        """Wait until all data is on the disk."""
        self._check_flush()
        sync(self._tokens)
        sync(self._ends)

    def finish(self, header: bytes) -> str:
        """Write the header, give the file the permissions of a shard, flush, and return the checksum of the file."""
        if header:
            self._tokens.seek(0)
            self._write(self._tokens, header)
        set_mode(self._tokens, usual_mode(Path(self._tokens.name).parent))
        self.flush()
        if not header:
            return self._checksum.hexdigest()
        return hash_file(Path(self._tokens.name))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._check_flush()
        self._flusher.close()
        self._tokens.close()
        self._ends.close()

    def _check_flush(self) -> None:
        if self._flushing is not None:
            flushing, self._flushing = self._flushing, None
            flushing.result()

    _write = staticmethod(write_all)


def bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array."""
    return np.ascontiguousarray(array).view(np.uint8).data


def _open_part(path: Path) -> BinaryIO:
    try:
        return open_file(path)
    except FileNotFoundError:
        raise _lost_part(str(path)) from None


def _check_ends(path: Path, last_end: int) -> None:
    """Raise `ShardsFormatError` unless the document ends of a part ascend from 0 to `last_end`."""
    before = 0
    for chunk in read_chunks(path):
        ends = np.concatenate([[before], chunk])
        if (ends[1:] < ends[:-1]).any():
            break
        before = int(ends[-1])
    else:
        if before == last_end:
            return
    raise ShardsFormatError(
        f"{path}: the document ends of the unfinished run are damaged. Pass overwrite=True to start again."
    )


def _lost_part(name: str) -> ShardsFormatError:
    return ShardsFormatError(
        f"{name}: the unfinished run needs this file, but it is missing or too short. "
        f"Pass overwrite=True to start again."
    )


def hash_file(path: Path) -> str:
    """Return the XXH64 of a file, 16 hexadecimal digits."""
    digest = _core.Xxh64()
    with path.open("rb") as file:
        _hash_rest(file, digest)
    return digest.hexdigest()


def _hash_rest(file: BinaryIO, digest: _core.Xxh64) -> None:
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
