"""Shard folder: a folder of shards as the pages read it: opened once, and again when its shards are replaced."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gristmill.analysis.shard_contents import count_shard_tokens, document_lengths, read_contents, shard_entries
from gristmill.analysis.vocabulary import token_lengths
from gristmill.errors import GristmillError, InputChangedError, ShardsFormatError
from gristmill.shards import Manifest, Shards
from gristmill.shards.edition import Edition
from gristmill.shards.folder_kind import is_gristmill_folder
from gristmill.shards.foreign import checksum_of
from gristmill.shards.journal import Journal
from gristmill.shards.manifest import PROGRESS_FILE
from gristmill.small_files import read_small_file
from gristmill.view.replies import Refusal

if TYPE_CHECKING:
    from gristmill.encode import Tokenizer

__all__ = ["OpenFolder", "OpenSplit", "ShardFolder", "written_so_far"]

# Without an index, finding the documents means reading all tokens. A larger split is shown in parts of equal size.
MAX_MARKED_TOKENS = 200_000_000
PART_TOKENS = 2_000
MAX_STAMPED_FILES = 2_000
MAX_PROGRESS_BYTES = 64 << 20

T = TypeVar("T")


class ShardFolder:
    """A folder of shards. Requests of several threads share what is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._opened: OpenFolder | None = None

    def opened(self) -> OpenFolder:
        """Return the folder with the shards that it holds now.

        Raises:
            ShardsFormatError: The shards are unfinished or damaged.
            FileNotFoundError: The folder does not exist any more.
        """
        with self._lock:
            if self._opened is None or not self._opened.is_current():
                self._opened = None  # frees the maps of the old shards
                self._opened = OpenFolder.from_path(self.path)
            return self._opened


class OpenFolder:
    """One edition of the shards of a folder."""

    def __init__(self, path: Path, manifest: Manifest, is_current: Callable[[], bool], edition: str) -> None:
        self.path, self.manifest, self.is_current, self.edition = path, manifest, is_current, edition
        self._lock = threading.Lock()
        self._computing = threading.Lock()  # for seconds, while documents can be read
        self._splits: dict[tuple[str, int | None], OpenSplit] = {}
        self._results: dict[tuple[str, str], Any] = {}

    @classmethod
    def from_path(cls, path: Path) -> OpenFolder:
        """Open the shards that are in the folder now."""
        if is_gristmill_folder(path):
            edition = Edition.from_folder(path)
            manifest = Manifest.read(path)
            edition.check()
            stamp = _stamp(path, manifest)
            return cls(
                path, manifest, lambda: _is_unchanged(edition) and _stamp(path, manifest) == stamp, edition.checksum
            )
        manifest = read_contents(path)
        stamp = _stamp(path, manifest)
        return cls(path, manifest, lambda: _stamp(path, manifest) == stamp, checksum_of(manifest))

    @property
    def is_foreign(self) -> bool:
        """Whether another program made the files, which then have no manifest."""
        return not self.manifest.tokenizer_fingerprint

    def split(self, name: str, tokenizer: Tokenizer | None = None, number: int | None = None) -> OpenSplit:
        """Return a split. `tokenizer`, the one with this `number`, is used if the folder has none."""
        if name not in self.manifest.splits:
            raise Refusal(f"There is no split {name[:40]!r}. Splits: {', '.join(self.manifest.splits) or 'none'}.", 404)
        if not self.is_foreign:
            tokenizer = number = None
        with self._lock:
            if (name, number) not in self._splits:
                shards = Shards(self.path, split=name, tokenizer=tokenizer)
                if not self.is_current():
                    raise InputChangedError(f"{self.path}: the shards have just been replaced. Try again.")
                has_index = all(entry.index is not None for entry in self.manifest.splits[name].shards)
                self._splits[name, number] = OpenSplit(shards, has_index)
            return self._splits[name, number]

    def counts(self, split: str) -> NDArray[np.int64]:
        """Return how often each id occurs in a split, or in an evenly spaced sample of a large one."""
        vocab_size = None if self.is_foreign else self.manifest.vocab_size
        return self._once("counts", split, lambda part: count_shard_tokens(self.path, part, vocab_size=vocab_size))

    def lengths(self, split: str) -> NDArray[np.int64]:
        """Return the lengths of the documents of a split, or of a sample. Empty if no file records them."""
        return self._once("lengths", split, lambda part: document_lengths(self.path, part))

    def _once(self, what: str, split: str, compute: Callable[[Manifest], T]) -> T:
        """Return the result for a split; the first caller computes it, and others wait for it."""
        if split not in self.manifest.splits:
            raise Refusal(f"There is no split {split[:40]!r}.", 404)
        with self._computing:
            if (what, split) not in self._results:
                part = dataclasses.replace(self.manifest, splits={split: self.manifest.splits[split]})
                self._results[what, split] = compute(part)
            result: T = self._results[what, split]
            return result


@dataclass(frozen=True, eq=False)
class OpenSplit:
    """A split and the units in which a page shows it: documents, or parts of equal size if no file records them."""

    shards: Shards
    has_index: bool  # whether files record where documents end

    @cached_property
    def why_parts(self) -> str | None:
        """None if the documents are known; otherwise why the split is shown in parts of equal size."""
        shards = self.shards
        if self.has_index:
            return None
        if shards.end_of_text is None:
            return "The files do not record where documents end, and no end-of-text token is known."
        if shards.num_tokens > MAX_MARKED_TOKENS:
            return (
                "The files do not record where documents end, and there are too many tokens to look for the "
                "end-of-text token."
            )
        try:
            _ = shards.document_ends
        except ShardsFormatError as error:
            return str(error)
        return None

    def __len__(self) -> int:
        """Return the number of documents, or of parts."""
        return len(self.shards) if self.why_parts is None else -(-self.shards.num_tokens // PART_TOKENS)

    def span(self, number: int) -> tuple[int, int]:
        """Return where a document or a part begins and ends, in tokens of the split."""
        if not 0 <= number < len(self):
            what = "document" if self.why_parts is None else "part"
            there = f"There are {len(self):,}, counted from 0" if len(self) else "The split is empty"
            raise Refusal(f"There is no {what} {number:,}. {there}.", 404)
        if self.why_parts is None:
            return self.shards.span(number)
        return number * PART_TOKENS, min((number + 1) * PART_TOKENS, self.shards.num_tokens)

    def locate(self, position: int) -> int:
        """Return the number of the document or part that contains a token."""
        return self.shards.document_at(position) if self.why_parts is None else position // PART_TOKENS

    @cached_property
    def _tokenizer(self) -> tuple[Tokenizer | None, str | None]:
        try:
            return self.shards.tokenizer, None
        except GristmillError as error:
            return None, str(error)

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, if it is known and can be read."""
        return self._tokenizer[0]

    @property
    def why_no_tokenizer(self) -> str | None:
        """Why there is no tokenizer; None if there is one."""
        return self._tokenizer[1]

    @cached_property
    def token_lengths(self) -> NDArray[np.int64]:
        """The number of bytes of each id."""
        assert self.tokenizer is not None
        return token_lengths(self.tokenizer)


class _SplitProgress(msgspec.Struct):
    part_tokens: int = 0
    part_documents: int = 0
    source_bytes: int = 0


class _State(msgspec.Struct):
    splits: dict[str, _SplitProgress]


class _Progress(msgspec.Struct):
    state: _State
    journal: dict[str, Any]


def written_so_far(folder: Path) -> list[dict[str, Any]]:
    """Return documents, tokens and shards of each split that an unfinished run has written until its last checkpoint.

    Empty if it has no checkpoint yet, or one that cannot be read.
    """
    try:
        data = read_small_file(
            folder / PROGRESS_FILE, what="progress", max_bytes=MAX_PROGRESS_BYTES, error=ShardsFormatError
        )
        progress = msgspec.json.decode(data, type=_Progress)
        published = Journal(folder).read(progress.journal)
    except (OSError, GristmillError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return [
        {
            "name": name,
            "documents": split.part_documents + sum(entry["documents"] for entry in published.get(name, [])),
            "tokens": split.part_tokens + sum(entry["tokens"] for entry in published.get(name, [])),
            "source_bytes": split.source_bytes,
            "shards": len(published.get(name, [])),
        }
        for name, split in progress.state.splits.items()
    ]


def _is_unchanged(edition: Edition) -> bool:
    try:
        edition.check()
    except InputChangedError:
        return False
    return True


def _stamp(folder: Path, manifest: Manifest) -> list[tuple[int, ...] | None]:
    """Return what changes when another program replaces or truncates files, which gives no other sign.

    Reading a map of a truncated file would kill the process. Opening the file again reports the damage.
    """
    entries = shard_entries(manifest)[:MAX_STAMPED_FILES]
    return [_identity(folder / name) for entry in entries for name in (entry.file, entry.index) if name is not None]


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
