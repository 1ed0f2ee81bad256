"""Layout: the interface of a format of token files, and the tokens it publishes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import OptionError, ShardsFormatError
from gristmill.shards.maps import map_array
from gristmill.small_files import open_regular

UINT16 = np.dtype("<u2")
UINT32 = np.dtype("<u4")
INT32 = np.dtype("<i4")
INT64 = np.dtype("<i8")

NUM_UINT16 = 1 << 16
SHARD_TOKENS = 100_000_000
CHUNK_ITEMS = 1 << 19  # of int64: 4 MiB at a time, for any number of documents


@dataclass(frozen=True, slots=True)
class Part:
    """The tokens of one complete shard, ready to be published."""

    tokens: Path  # `header_bytes` left free, then the tokens
    ends: Path  # int64, little-endian: the document ends, in tokens from the beginning of the shard
    num_tokens: int
    num_documents: int
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A token file that another program made and a layout recognized."""

    file: str
    num_tokens: int
    dtype: np.dtype[Any]
    index: str | None = None  # the file with its document ends
    num_documents: int | None = None  # in the index


class Layout:
    """A format of token files: file names, headers and indexes, and how to read them.

    Most layouts write tokens directly to their final position; only a header and an index are added when a shard is
    complete. A layout that `converts` makes its token file from the finished part instead.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    header_bytes: ClassVar[int] = 0  # free space before the tokens
    splits_documents: ClassVar[bool] = True  # a document may continue in the next shard
    shard_tokens: ClassVar[int | None] = SHARD_TOKENS  # None: one file per split, of any size
    max_tokens: ClassVar[int | None] = None  # in one file
    end_of_text: ClassVar[Literal["after", "before"]] = "after"
    converts: ClassVar[bool] = False
    any_width: ClassVar[bool] = False  # the files or the manifest record the width of the ids
    extra_names: ClassVar[tuple[str, ...]] = ()  # files beside the token files, one of each per folder

    def dtype(self, vocab_size: int) -> np.dtype[Any]:
        """Return the type of ids below `vocab_size`; raise `OptionError` if they do not fit."""
        return UINT16 if vocab_size <= NUM_UINT16 else UINT32

    def token_file(self, name: str, split: str, number: int) -> str:
        """Return the name of shard `number`, counted from 0 in its split; `name` is the name of the folder."""
        raise NotImplementedError

    def index_file(self, name: str, split: str, number: int) -> str | None:
        """Return the name of the file with its document ends, or None."""
        return None

    def header(self, num_tokens: int, dtype: np.dtype[Any]) -> bytes:
        """Return the `header_bytes` bytes before the tokens."""
        self.check_num_tokens(num_tokens)
        return b""

    def with_tokens_column(self, column: str) -> Layout:
        """Return this layout with another column name for the ids; raise `OptionError` if it has no columns."""
        raise OptionError(
            f"tokens_column={column!r} does not apply to format={self.name!r}, which has no columns. Pass "
            f"format='parquet', or leave it out."
        )

    def extra_file(self, name: str, vocab: Mapping[int, bytes], vocab_size: int) -> bytes:
        """Return the content of the file `name`, one of `extra_names`, for this vocabulary; always the same bytes."""
        raise NotImplementedError

    def check_num_tokens(self, num_tokens: int) -> None:
        """Raise `OptionError` if a file cannot hold this many tokens."""
        if self.max_tokens is not None and num_tokens > self.max_tokens:
            raise OptionError(
                f"a file of the format {self.name!r} holds at most {self.max_tokens:,} tokens, not {num_tokens:,}. "
                f"Pass a smaller shard_tokens."
            )

    def write_tokens(self, file: BinaryIO, part: Part) -> None:
        """Write the token file of `part`; only for a layout that `converts`."""
        raise NotImplementedError

    def write_index(self, file: BinaryIO, part: Part) -> None:
        """Write the index of `part`, if the layout has one. By default, the document ends as they are."""
        with part.ends.open("rb") as ends:
            shutil.copyfileobj(ends, file, CHUNK_ITEMS * INT64.itemsize)

    def open_tokens(self, path: Path, num_tokens: int, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """Return the tokens of a shard as a read-only memory map; None if the file does not contain them plainly."""
        return map_array(path, dtype, num_tokens, offset=self.header_bytes)

    def index_bytes(self, num_documents: int) -> int:
        """Return the size of an index."""
        return num_documents * INT64.itemsize

    def read_ends(self, path: Path, num_documents: int, dtype: np.dtype[Any]) -> Iterator[NDArray[np.int64]]:
        """Yield the document ends in the index at `path`, in chunks; raise `ShardsFormatError` if it is invalid."""
        ends = map_array(path, INT64, num_documents)
        for begin in range(0, num_documents, CHUNK_ITEMS):
            yield ends[begin : begin + CHUNK_ITEMS]

    def document_ends(self, path: Path, num_documents: int) -> NDArray[np.int64]:
        """Return the document ends in the index at `path`, which another program may have written."""
        return map_array(path, INT64, num_documents)

    def find_files(self, folder: Path, names: Sequence[str]) -> list[FoundFile]:
        """Return the token files of this layout among `names`, by their content; `ShardsFormatError` if damaged.

        Called for folders without a manifest, which other programs made. Layouts that only Gristmill writes find
        nothing.
        """
        return []

    def read_rows(self, path: Path) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """Yield tokens, and the lengths of the documents in them, in chunks; only for a layout that `converts`."""
        raise NotImplementedError

    def how_to_read(self, path: str, dtype: np.dtype[Any]) -> str:
        """Return a line of Python that reads the tokens of the shard at `path`."""
        offset = f", offset={self.header_bytes}" if self.header_bytes else ""
        return f'np.memmap({path!r}, "{dtype.name}", "r"{offset})'


def read_chunks(path: Path) -> Iterator[NDArray[np.int64]]:
    """Yield the int64 numbers of a file, in chunks."""
    with path.open("rb") as file:
        while data := file.read(CHUNK_ITEMS * INT64.itemsize):
            yield np.frombuffer(data, INT64)


_SPLITS = {"val": "val", "valid": "val", "validation": "val", "test": "test"}


def split_of(file: str) -> str:
    """Return the split of a foreign file by its name: "val" or "test" if the name has such a word, else "train".

    >>> [split_of(name) for name in ("fineweb_val_000000.bin", "validation.bin", "wiki_text_document.bin", "value.bin")]
    ['val', 'val', 'train', 'train']
    """
    words = re.split(r"[^a-z]+", file.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), "train")


def read_head(path: Path, size: int) -> bytes:
    """Return the first `size` bytes of a file, or all if it is shorter."""
    with open_regular(path, error=ShardsFormatError) as file:
        return file.read(size)
