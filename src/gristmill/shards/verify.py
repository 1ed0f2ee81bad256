"""verify: whether a folder of shards is what its manifest says, byte for byte.

Checked are the manifest (its own checksum, the sums in it), the tokenizer (its fingerprint), every file (that it is
there, its size, its checksum), every id (below vocab_size), the documents (ends that increase, up to the last token),
and the inputs, as far as they are there (size, modified time, samples of the content). Memory stays at a few
megabytes, and nothing is changed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.errors import OptionError, ShardsFormatError
from gristmill.progress import OnProgress, ProgressOption, open_progress
from gristmill.shards.input_samples import sample_input
from gristmill.shards.layouts import LAYOUTS
from gristmill.shards.manifest import (
    EDITED,
    MANIFEST_FILE,
    InputEntry,
    Manifest,
    ShardEntry,
    Split,
    checksum_fits,
    read_manifest,
)
from gristmill.shards.shards import load_tokenizer

__all__ = ["Problem", "Report", "verify_shards"]

CHUNK_BYTES = 1 << 20  # a multiple of every token's size, and not more than the cache holds
REPORT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be."""

    check: str  # "manifest" | "tokenizer" | "files" | "ids" | "documents" | "inputs"
    where: str  # the file it was found in
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked, and what was found."""

    folder: str
    manifest: Manifest | None  # None where it could not be read
    problems: tuple[Problem, ...]
    num_files: int  # of shards and indexes, read to their end
    num_bytes: int
    num_tokens: int
    num_documents: int
    num_inputs: int
    unchecked: tuple[str, ...]  # what could not be checked, and why
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


def verify_shards(folder: str | os.PathLike[str], *, inputs: bool = True, progress: ProgressOption = None) -> Report:
    """Check all that a folder of shards holds, and return what was found; damage is a problem in the report, no error.

    inputs: also whether the files of the corpus are still what they were, as far as they are there.

    A folder that is unfinished, or not one of shards, is a `ShardsFormatError`: there is nothing to hold it against.
    """
    began = time.perf_counter()
    data = read_manifest(folder)
    with open_progress(progress) as on_progress:
        verification = _Verification(Path(folder), on_progress)
        manifest = verification.check_manifest(data)
        if manifest is not None:
            verification.check_folder(manifest)
            if inputs:
                verification.check_inputs(manifest.inputs)
    return Report(
        folder=os.fspath(folder),
        manifest=manifest,
        problems=tuple(verification.problems),
        num_files=verification.num_files,
        num_bytes=verification.num_bytes,
        num_tokens=verification.num_tokens,
        num_documents=verification.num_documents,
        num_inputs=verification.num_inputs,
        unchecked=tuple(verification.unchecked),
        seconds=time.perf_counter() - began,
    )


class _Verification:
    """The checks, and what they have found so far."""

    def __init__(self, folder: Path, on_progress: OnProgress | None) -> None:
        self._folder = folder
        self._on_progress = on_progress
        self._total_bytes = 0
        self._reported = 0.0
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self.problems: list[Problem] = []
        self.unchecked: list[str] = []
        self.num_files = self.num_bytes = self.num_tokens = self.num_documents = self.num_inputs = 0

    def found(self, check: str, where: str, what: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(check, where, what))

    # The folder

    def check_manifest(self, data: bytes) -> Manifest | None:
        """What the manifest says; None for one that cannot be believed at all, of which no file is opened."""
        path = self._folder / MANIFEST_FILE
        try:
            manifest = Manifest.of_json(data, path)
        except ShardsFormatError as error:
            self.found("manifest", MANIFEST_FILE, _without_path(error, path))
            return None
        if not checksum_fits(data):
            self.found("manifest", MANIFEST_FILE, EDITED)
        return manifest

    def check_folder(self, manifest: Manifest) -> None:
        """Check everything in the folder but the bytes of the manifest."""
        self._manifest = manifest
        self._layout = LAYOUTS[manifest.layout]
        self._dtype = manifest.token_dtype
        self._sizes = self._find_files()
        self._total_bytes = sum(self._sizes.values())
        self._check_extra_files()
        self._check_tokenizer()
        for name, split in manifest.splits.items():
            self._check_sums(name, split)
            self._check_split(split)
        self._report_progress(at_the_end=True)

    def _find_files(self) -> dict[str, int]:
        """The sizes of the shards and indexes that can be opened. Looks at all names first: links are not followed."""
        sizes = {}
        for entry in self._entries():
            for name in filter(None, (entry.file, entry.index)):
                if (size := self._size_of(name)) is not None:
                    sizes[name] = size
        return sizes

    def _size_of(self, name: str) -> int | None:
        try:
            status = os.lstat(self._folder / name)
        except FileNotFoundError:
            self.found("files", name, "it is missing.")
            return None
        if stat.S_ISLNK(status.st_mode):
            self.found("files", name, "it is a symbolic link, and links are not followed. Put the file itself there.")
        elif not stat.S_ISREG(status.st_mode):
            self.found("files", name, "it is not a file.")
        else:
            return status.st_size
        return None

    def _entries(self) -> Iterator[ShardEntry]:
        for split in self._manifest.splits.values():
            yield from split.shards

    def _check_extra_files(self) -> None:
        """Find what looks like a shard and is not named: a reader that takes all files of a folder would read it."""
        named = {name for entry in self._entries() for name in (entry.file, entry.index)}
        ours = (self._layout.token_file("x", "train", 0), self._layout.index_file("x", "train", 0))
        suffixes = tuple(name[name.index(".") :] for name in ours if name is not None)
        for name in sorted(os.listdir(self._folder)):  # noqa: PTH208  names are all that is needed
            if name.endswith(suffixes) and name not in named and not name.startswith("."):
                self.found("files", name, "it looks like a shard, but is not in the manifest.")

    def _check_tokenizer(self) -> None:
        name = self._manifest.tokenizer_file
        if self._size_of(name) is None:
            return
        try:
            tokenizer = load_tokenizer(self._manifest, self._folder)
        except ShardsFormatError as error:
            self.found("tokenizer", name, _without_path(error, self._folder / name))
            return
        there, said = tokenizer.vocab_size, self._manifest.vocab_size
        if there != said:
            self.found("tokenizer", name, f"its vocabulary has {there:,} ids, and the manifest says {said:,}.")
        mark = self._manifest.end_of_text
        if mark is not None and tokenizer.special_tokens.get(mark.token) != mark.id:
            self.found("tokenizer", name, f"its special token {mark.token!r} does not have the id {mark.id}.")

    def _check_sums(self, name: str, split: Split) -> None:
        for what in ("documents", "tokens"):
            said, there = getattr(split, what), sum(getattr(entry, what) for entry in split.shards)
            if said != there:
                self.found(
                    "manifest", MANIFEST_FILE, f"splits.{name}.{what} is {said:,}, and its shards have {there:,}."
                )

    # Shards

    def _check_split(self, split: Split) -> None:
        last = max((i for i, entry in enumerate(split.shards) if entry.tokens), default=-1)
        for i, entry in enumerate(split.shards):
            sound = self._check_tokens(entry)
            if self._layout.converts and sound:
                self._check_rows(entry)
            elif entry.index is not None:
                self._check_index(entry, closes=i == last or not self._layout.splits_documents)

    def _check_tokens(self, entry: ShardEntry) -> bool:
        """Check the bytes and ids of a token file, in one pass; whether its content is what the manifest says."""
        layout, file = self._layout, entry.file
        header = b""
        if not layout.converts:
            expected = layout.header_bytes + entry.tokens * self._dtype.itemsize
            if expected != entry.bytes:
                self.found("files", file, f"{entry.tokens:,} tokens need {expected:,} bytes, not {entry.bytes:,}.")
                return False
            if layout.max_tokens is not None and entry.tokens > layout.max_tokens:
                self.found("files", file, f"it has {entry.tokens:,} tokens; at most {layout.max_tokens:,} are allowed.")
                return False
            header = layout.header(entry.tokens, self._dtype)
        ids = _IdRange(self._manifest.vocab_size, self._dtype)

        def look_at(chunk: memoryview, position: int) -> None:
            if position < len(header):
                if chunk != header:
                    self.found("files", file, f"its header is not that of {entry.tokens:,} {self._dtype.name} tokens.")
            elif not layout.converts:
                ids.add(ids.of_bytes(chunk))

        sound = self._check_file(file, entry.bytes, entry.xxh64, len(header), look_at)
        self._note_ids(file, ids)
        return sound

    def _check_index(self, entry: ShardEntry, *, closes: bool) -> None:
        """Check the bytes of an index and the document ends in it; `closes`: the last one is that of the shard."""
        name, num_bytes = cast(str, entry.index), self._layout.index_bytes(entry.documents)
        if not self._check_file(name, num_bytes, entry.index_xxh64 or ""):
            return
        try:
            ends = self._layout.read_ends(self._folder / name, entry.documents, self._dtype)
            fault = self._fault_of_ends(ends, entry, closes)
        except ShardsFormatError as error:
            fault = _without_path(error, self._folder / name)
        if fault is not None:
            self.found("documents", name, fault)

    def _fault_of_ends(self, chunks: Iterable[NDArray[np.int64]], entry: ShardEntry, closes: bool) -> str | None:
        """What is wrong with the document ends of a shard."""
        may_be_empty = self._manifest.end_of_text is None
        last = number = 0
        for ends in chunks:
            before = np.concatenate([[last], ends[:-1]])
            wrong = ends < before if may_be_empty else ends <= before
            if wrong.any():
                i = int(wrong.argmax())
                return f"document {number + i:,} ends at token {ends[i]:,} of the shard; it begins at {before[i]:,}."
            last = int(ends[-1])
            number += len(ends)
        self.num_documents += number
        if last > entry.tokens or (last < entry.tokens and closes):
            return f"its last document ends at token {last:,}, and the shard has {entry.tokens:,}."
        return None

    def _check_rows(self, entry: ShardEntry) -> None:
        """Check the documents and ids of a file that holds them in rows."""
        ids = _IdRange(self._manifest.vocab_size, self._dtype)
        num_documents = 0
        try:
            for tokens, lengths in self._layout.read_rows(self._folder / entry.file):
                ids.add(tokens)
                num_documents += len(lengths)
        except OptionError as error:  # the package that reads it is missing
            self.unchecked.append(f"{entry.file}: ids and documents: {error}")
            return
        except (OSError, ValueError, KeyError) as error:
            self.found("documents", entry.file, f"its rows cannot be read: {error}")
            return
        self._note_ids(entry.file, ids)
        self.num_documents += num_documents
        for what, said, there in (("tokens", entry.tokens, ids.count), ("documents", entry.documents, num_documents)):
            if said != there:
                self.found("documents", entry.file, f"it holds {there:,} {what}, and the manifest says {said:,}.")

    def _note_ids(self, file: str, ids: _IdRange) -> None:
        self.num_tokens += ids.count
        if ids.wrong is not None:
            position, id = ids.wrong
            self.found(
                "ids", file, f"token {position:,} is {id}, and ids go from 0 to {self._manifest.vocab_size - 1}."
            )

    # Bytes

    def _check_file(
        self,
        name: str,
        num_bytes: int,
        checksum: str,
        header_bytes: int = 0,
        look_at: Callable[[memoryview, int], None] | None = None,
    ) -> bool:
        """Whether the file has this size and checksum; `look_at` is shown the header, then chunk after chunk."""
        size = self._sizes.get(name)
        if size is None:
            return False
        if size != num_bytes:
            self.found("files", name, f"it has {size:,} bytes, and should have {num_bytes:,}.")
            return False
        digest, position = _core.Xxh64(), 0
        for chunk in self._chunks(self._folder / name, header_bytes):
            digest.update(chunk)
            if look_at is not None:
                look_at(chunk, position)
            position += len(chunk)
        self.num_files += 1
        found = digest.hexdigest()
        if found != checksum:
            self.found("files", name, f"its content has changed (its checksum is {found}, not {checksum}).")
            return False
        return True

    def _chunks(self, path: Path, header_bytes: int) -> Iterator[memoryview]:
        with _open(path) as file:
            wanted = header_bytes or CHUNK_BYTES
            while num_bytes := file.readinto(self._buffer[:wanted]):
                yield self._buffer[:num_bytes]
                wanted = CHUNK_BYTES
                self.num_bytes += num_bytes
                self._report_progress()

    def _report_progress(self, *, at_the_end: bool = False) -> None:
        now = time.perf_counter()
        if self._on_progress is not None and (at_the_end or now - self._reported > REPORT_SECONDS):
            self._reported = now
            self._on_progress("verify", self.num_bytes, max(self._total_bytes, self.num_bytes))

    # Inputs

    def check_inputs(self, inputs: Iterable[InputEntry]) -> None:
        """Check whether the files of the corpus are still what they were when they were read."""
        for entry in inputs:
            if entry.skipped is not None:
                self.unchecked.append(f"{entry.path}: it was skipped when the shards were made.")
            elif "://" in entry.path:
                self.unchecked.append(f"{entry.path}: it is not a local file.")
            else:
                self._check_input(entry)

    def _check_input(self, entry: InputEntry) -> None:
        try:
            status = Path(entry.path).stat()
            if not stat.S_ISREG(status.st_mode):
                self.found("inputs", entry.path, "it is no longer a file.")
                return
            changes = _changes(entry, status)
        except (FileNotFoundError, NotADirectoryError):
            self.unchecked.append(f"{entry.path}: it is not there.")
            return
        except OSError as error:
            self.unchecked.append(f"{entry.path}: it cannot be read: {error.strerror}.")
            return
        self.num_inputs += 1
        if changes:
            self.found("inputs", entry.path, f"it is not what was read: {', '.join(changes)}.")


class _IdRange:
    """Counts ids, and remembers the first that no token has."""

    def __init__(self, vocab_size: int, dtype: np.dtype[Any]) -> None:
        # Negative ones of int32 become the largest.
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


def _changes(entry: InputEntry, status: os.stat_result) -> list[str]:
    """How an input differs from what was read."""
    changes = []
    if status.st_size != entry.bytes:
        changes.append(f"its size is {status.st_size:,} bytes instead of {entry.bytes:,}")
    if entry.modified_ns is not None and status.st_mtime_ns != entry.modified_ns:
        changes.append("it was modified at another time")
    if entry.samples and status.st_size == entry.bytes:
        with Path(entry.path).open("rb", buffering=0) as file:
            samples = sample_input(lambda offset, size: _read_at(file, offset, size), status.st_size)
        if samples != entry.samples:
            changes.append("its content differs")
    return changes


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _open(path: Path) -> Any:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0))

    return open(path, "rb", opener=opener)


def _without_path(error: Exception, path: Path) -> str:
    """The message of an error, where the report already names the file."""
    return str(error).removeprefix(f"{path}: ")
