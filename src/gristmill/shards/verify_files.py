"""Checks of shard files, which are read to their end: size, checksum, header, every id, every document.

It needs a few megabytes of memory and changes nothing. Results are collected in `Findings`.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus.inputs import shown
from gristmill.errors import MissingPackageError, ShardsFormatError
from gristmill.progress import OnProgress
from gristmill.shards.layouts import layout_of
from gristmill.shards.manifest import Manifest, ShardEntry, Split
from gristmill.trace import span

CHUNK_BYTES = 1 << 20  # a multiple of every token size; fits in the cache
REPORT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a folder of shards."""

    check: str  # "manifest" | "tokenizer" | "files" | "ids" | "documents" | "inputs"
    where: str  # the file with the problem
    what: str

    def __str__(self) -> str:
        return f"{shown(self.where)}: {self.what}"


@dataclass(slots=True)
class Findings:
    """Results of the checks so far."""

    problems: list[Problem] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)  # items that could not be checked, and why
    num_files: int = 0  # shard and index files, read to their end
    num_bytes: int = 0
    num_tokens: int = 0
    num_documents: int = 0
    num_inputs: int = 0

    def found(self, check: str, where: str, what: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(check, where, what))


class FileChecks:
    """Checks the token files and indexes that a manifest names."""

    def __init__(
        self, folder: Path, manifest: Manifest, findings: Findings, on_progress: OnProgress | None = None
    ) -> None:
        """Check the names and sizes of all files; nothing is read yet."""
        self._folder, self._manifest = folder, manifest
        self._findings, self._found = findings, findings.found
        self._layout = layout_of(manifest.layout, manifest.options)
        self._dtype = manifest.token_dtype
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._sizes = self._find_files()
        self._on_progress = on_progress
        self._total_bytes = sum(self._sizes.values())
        self._reported = 0.0

    def check(self) -> None:
        """Read every file to its end."""
        for split in self._manifest.splits.values():
            self._check_split(split)
        self._report_progress(at_the_end=True)

    def _find_files(self) -> dict[str, int]:
        """Return the sizes of the shards and indexes that can be opened. Links are not followed."""
        sizes = {}
        for entry in entries_of(self._manifest):
            for name in filter(None, (entry.file, entry.index)):
                if (size := size_of(self._folder, name, self._findings)) is not None:
                    sizes[name] = size
        return sizes

    # Shards

    def _check_split(self, split: Split) -> None:
        last = max((i for i, entry in enumerate(split.shards) if entry.tokens), default=-1)
        for i, entry in enumerate(split.shards):
            with span("check token file", bytes=entry.bytes):
                sound = self._check_tokens(entry)
            if self._layout.converts and sound:
                self._check_rows(entry)
            elif entry.index is not None:
                self._check_index(entry, closes=i == last or not self._layout.splits_documents)

    def _check_tokens(self, entry: ShardEntry) -> bool:
        """Check the bytes and ids of a token file in one pass; return whether its checksum matches the manifest."""
        layout, file = self._layout, entry.file
        header = b""
        if not layout.converts:
            expected = layout.header_bytes + entry.tokens * self._dtype.itemsize
            if expected != entry.bytes:
                self._found("files", file, f"{entry.tokens:,} tokens need {expected:,} bytes, not {entry.bytes:,}.")
                return False
            if layout.max_tokens is not None and entry.tokens > layout.max_tokens:
                self._found(
                    "files",
                    file,
                    f"{entry.tokens:,} tokens are too many; the format allows {layout.max_tokens:,} per file.",
                )
                return False
            header = layout.header(entry.tokens, self._dtype)
        ids = _IdRange(self._manifest.vocab_size, self._dtype)

        def look_at(chunk: memoryview, position: int) -> None:
            if position < len(header):
                if chunk != header:
                    self._found("files", file, f"its header does not match {entry.tokens:,} {self._dtype.name} tokens.")
            elif not layout.converts:
                ids.add(ids.of_bytes(chunk))

        sound = self._check_file(file, entry.bytes, entry.xxh64, len(header), look_at)
        self._note_ids(file, ids)
        return sound

    def _check_index(self, entry: ShardEntry, *, closes: bool) -> None:
        """Check the bytes of an index and its document ends; `closes`: a document ends at the end of the shard."""
        name, num_bytes = cast(str, entry.index), self._layout.index_bytes(entry.documents)
        if not self._check_file(name, num_bytes, entry.index_xxh64 or ""):
            return
        try:
            ends = self._layout.read_ends(self._folder / name, entry.documents, self._dtype)
            fault = self._fault_of_ends(ends, entry, closes)
        except ShardsFormatError as error:
            fault = without_path(error, self._folder / name)
        if fault is not None:
            self._found("documents", name, fault)

    def _fault_of_ends(self, chunks: Iterable[NDArray[np.int64]], entry: ShardEntry, closes: bool) -> str | None:
        """Describe what is wrong with the document ends of a shard; None if nothing is."""
        may_be_empty = self._manifest.end_of_text is None
        last = number = 0
        for ends in chunks:
            before = np.concatenate([[last], ends[:-1]])
            wrong = ends < before if may_be_empty else ends <= before
            if wrong.any():
                i = int(wrong.argmax())
                return f"document {number + i:,} ends at token {ends[i]:,} of the shard but begins at {before[i]:,}."
            last = int(ends[-1])
            number += len(ends)
        self._findings.num_documents += number
        if last > entry.tokens or (last < entry.tokens and closes):
            return f"its last document ends at token {last:,}, but the shard has {entry.tokens:,} tokens."
        return None

    def _check_rows(self, entry: ShardEntry) -> None:
        """Check the documents and ids of a file that stores them in rows."""
        ids = _IdRange(self._manifest.vocab_size, self._dtype)
        num_documents = 0
        try:
            for tokens, lengths in self._layout.read_rows(self._folder / entry.file):
                ids.add(tokens)
                num_documents += len(lengths)
        except MissingPackageError as error:
            self._findings.unchecked.append(f"{entry.file}: ids and documents: {error}")
            return
        except (OSError, ValueError, KeyError) as error:
            self._found("documents", entry.file, f"its rows cannot be read: {error}")
            return
        self._note_ids(entry.file, ids)
        self._findings.num_documents += num_documents
        for what, said, there in (("tokens", entry.tokens, ids.count), ("documents", entry.documents, num_documents)):
            if said != there:
                self._found("documents", entry.file, f"it has {there:,} {what}; the manifest records {said:,}.")

    def _note_ids(self, file: str, ids: _IdRange) -> None:
        self._findings.num_tokens += ids.count
        if ids.wrong is not None:
            position, id = ids.wrong
            self._found("ids", file, f"token {position:,} is {id}; ids must be 0 to {self._manifest.vocab_size - 1}.")

    # Bytes

    def _check_file(
        self,
        name: str,
        num_bytes: int,
        checksum: str,
        header_bytes: int = 0,
        look_at: Callable[[memoryview, int], None] | None = None,
    ) -> bool:
        """Whether the file has this size and checksum; `look_at` receives the header, then each chunk."""
        size = self._sizes.get(name)
        if size is None:
            return False
        if size != num_bytes:
            self._found("files", name, f"its size is {size:,} bytes, expected {num_bytes:,}.")
            return False
        digest, position = _core.Xxh64(), 0
        for chunk in self._chunks(self._folder / name, header_bytes):
            digest.update(chunk)
            if look_at is not None:
                look_at(chunk, position)
            position += len(chunk)
        self._findings.num_files += 1
        found = digest.hexdigest()
        if found != checksum:
            self._found("files", name, f"its content has changed (checksum {found}, expected {checksum}).")
            return False
        return True

    def _chunks(self, path: Path, header_bytes: int) -> Iterator[memoryview]:
        with _open(path) as file:
            wanted = header_bytes or CHUNK_BYTES
            while num_bytes := file.readinto(self._buffer[:wanted]):
                yield self._buffer[:num_bytes]
                wanted = CHUNK_BYTES
                self._findings.num_bytes += num_bytes
                self._report_progress()

    def _report_progress(self, *, at_the_end: bool = False) -> None:
        now = time.perf_counter()
        if self._on_progress is not None and (at_the_end or now - self._reported > REPORT_SECONDS):
            self._reported = now
            self._on_progress("verify", self._findings.num_bytes, max(self._total_bytes, self._findings.num_bytes))


class _IdRange:
    """Counts ids, and records the first one outside the vocabulary."""

    def __init__(self, vocab_size: int, dtype: np.dtype[Any]) -> None:
        # As unsigned numbers, negative int32 ids are too large as well.
        self._unsigned = np.dtype(f"<u{dtype.itemsize}")
        self._vocab_size = vocab_size
        self.count = 0
        self.wrong: tuple[int, int] | None = None  # position and id

    def of_bytes(self, chunk: memoryview) -> NDArray[Any]:
        return np.frombuffer(chunk[: len(chunk) - len(chunk) % self._unsigned.itemsize], self._unsigned)

    def add(self, ids: NDArray[Any]) -> None:
        if self.wrong is None and len(ids) and ids.max() >= self._vocab_size:
            i = int((ids >= self._vocab_size).argmax())
            self.wrong = self.count + i, int(ids[i])
        self.count += len(ids)


def entries_of(manifest: Manifest) -> Iterator[ShardEntry]:
    """Yield the shards of all splits."""
    for split in manifest.splits.values():
        yield from split.shards


def size_of(folder: Path, name: str, findings: Findings) -> int | None:
    """Return the size of a regular file in the folder; None, and a problem, for anything else. Follows no links."""
    try:
        status = os.lstat(folder / name)
    except FileNotFoundError:
        findings.found("files", name, "the file is missing.")
        return None
    if stat.S_ISLNK(status.st_mode):
        findings.found("files", name, "it is a symbolic link, which is not followed. Replace it by the file.")
    elif not stat.S_ISREG(status.st_mode):
        findings.found("files", name, "it is not a regular file.")
    else:
        return status.st_size
    return None


def _open(path: Path) -> Any:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0))

    return open(path, "rb", opener=opener)


def without_path(error: Exception, path: Path) -> str:
    """Return the message of an error without the path, which the report already names."""
    return str(error).removeprefix(f"{path}: ")
