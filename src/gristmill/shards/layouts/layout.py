"""What a layout says of itself, and the tokens it is given to publish."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import OptionError
from gristmill.shards.maps import map_array

UINT16 = np.dtype("<u2")
UINT32 = np.dtype("<u4")
INT32 = np.dtype("<i4")
INT64 = np.dtype("<i8")

NUM_UINT16 = 1 << 16
SHARD_TOKENS = 100_000_000
CHUNK_ITEMS = 1 << 19  # of int64: 4 MiB at a time, however many documents there are


@dataclass(frozen=True, slots=True)
class Part:
    """The tokens of one shard, complete, about to be published."""

    tokens: Path  # `header_bytes` of room, then the tokens
    ends: Path  # int64, little-endian: where each document that ends here ends, in tokens from the shard's beginning
    num_tokens: int
    num_documents: int
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A token file that another program made, as a layout recognizes it."""

    file: str
    num_tokens: int
    dtype: np.dtype[Any]
    index: str | None = None  # the file beside it that says where its documents end
    num_documents: int | None = None  # that the index has


class Layout:
    """A format of token files: what the files are called, what stands in them around the tokens, how they are read.

    The tokens of most layouts are written to their place as they come; only a header and an index are added when a
    shard is complete. A layout that `converts` makes its token file from the finished part instead.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    header_bytes: ClassVar[int] = 0  # room before the tokens
    splits_documents: ClassVar[bool] = True  # a document may go on in the next shard
    shard_tokens: ClassVar[int | None] = SHARD_TOKENS  # None: one file a split, however large
    max_tokens: ClassVar[int | None] = None  # in one file
    end_of_text: ClassVar[Literal["after", "before"]] = "after"
    converts: ClassVar[bool] = False
    any_width: ClassVar[bool] = False  # the files, or the manifest for them, say how wide the ids are
    extra_names: ClassVar[tuple[str, ...]] = ()  # of files beside the token files, one of each per folder

    def dtype(self, vocab_size: int) -> np.dtype[Any]:
        """The type of the ids below `vocab_size`; `OptionError` where they do not fit."""
        return UINT16 if vocab_size <= NUM_UINT16 else UINT32

    def token_file(self, name: str, split: str, number: int) -> str:
        """The name of a shard, the first of its split being number 0; `name` is that of the folder."""
        raise NotImplementedError

    def index_file(self, name: str, split: str, number: int) -> str | None:
        """The name of the file beside it that says where its documents end, if there is one."""
        return None

    def header(self, num_tokens: int, dtype: np.dtype[Any]) -> bytes:
        """What stands before the tokens: `header_bytes` of it."""
        self.check_num_tokens(num_tokens)
        return b""

    def with_tokens_column(self, column: str) -> Layout:
        """This layout with another name for the column of ids; `OptionError` for one that has no columns."""
        raise OptionError(
            f"tokens_column={column!r} is the name of a column, and the format {self.name!r} has none. Pass "
            f"format='parquet', or leave it out."
        )

    def extra_file(self, name: str, vocab: Mapping[int, bytes], vocab_size: int) -> bytes:
        """What the file `name`, one of `extra_names`, holds for this vocabulary: the same bytes every time."""
        raise NotImplementedError

    def check_num_tokens(self, num_tokens: int) -> None:
        """`OptionError` if a file cannot hold that many."""
        if self.max_tokens is not None and num_tokens > self.max_tokens:
            raise OptionError(
                f"a file of the format {self.name!r} holds at most {self.max_tokens:,} tokens, not {num_tokens:,}. "
                f"Pass a smaller shard_tokens."
            )

    def write_tokens(self, file: BinaryIO, part: Part) -> None:
        """Write the token file of `part`; only for a layout that `converts`."""
        raise NotImplementedError

    def write_index(self, file: BinaryIO, part: Part) -> None:
        """Write the index of `part`; only for a layout that has one. The document ends as they are, unless said so."""
        with part.ends.open("rb") as ends:
            shutil.copyfileobj(ends, file, CHUNK_ITEMS * INT64.itemsize)

    def open_tokens(self, path: Path, num_tokens: int, dtype: np.dtype[Any]) -> NDArray[Any] | None:
        """The tokens of a shard as a read-only memory map; None where they do not lie in the file as they are."""
        return map_array(path, dtype, num_tokens, offset=self.header_bytes)

    def index_bytes(self, num_documents: int) -> int:
        """The size of an index."""
        return num_documents * INT64.itemsize

    def read_ends(self, path: Path, num_documents: int, dtype: np.dtype[Any]) -> Iterator[NDArray[np.int64]]:
        """The document ends in the index at `path`, in chunks; `ShardsFormatError` for one that contradicts itself."""
        ends = map_array(path, INT64, num_documents)
        for begin in range(0, num_documents, CHUNK_ITEMS):
            yield ends[begin : begin + CHUNK_ITEMS]

    def document_ends(self, path: Path, num_documents: int) -> NDArray[np.int64]:
        """Where documents end, from the index at `path`, which another program may have written."""
        return map_array(path, INT64, num_documents)

    def find_files(self, folder: Path, names: Sequence[str]) -> list[FoundFile]:
        """The token files of this layout among `names`, by what stands in them; `ShardsFormatError` for damaged ones.

        Called for folders without a manifest, which other programs made. No file is found by a layout that only
        Gristmill writes.
        """
        return []

    def read_rows(self, path: Path) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """Tokens, and the lengths of the documents in them, in chunks; only for a layout that `converts`."""
        raise NotImplementedError

    def how_to_read(self, path: str, dtype: np.dtype[Any]) -> str:
        """A line of Python that gives the tokens of the shard at `path`."""
        offset = f", offset={self.header_bytes}" if self.header_bytes else ""
        return f'np.memmap({path!r}, "{dtype.name}", "r"{offset})'


def read_chunks(path: Path) -> Iterator[NDArray[np.int64]]:
    """The int64 numbers of a file, some at a time."""
    with path.open("rb") as file:
        while data := file.read(CHUNK_ITEMS * INT64.itemsize):
            yield np.frombuffer(data, INT64)


_SPLITS = {"val": "val", "valid": "val", "validation": "val", "test": "test"}


def split_of(file: str) -> str:
    """The split that the name of a foreign file says it belongs to: "val" or "test" as a word in it, else "train".

    >>> [split_of(name) for name in ("fineweb_val_000000.bin", "validation.bin", "wiki_text_document.bin", "value.bin")]
    ['val', 'val', 'train', 'train']
    """
    words = re.split(r"[^a-z]+", file.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), "train")


def read_head(path: Path, size: int) -> bytes:
    """The first `size` bytes of a file, or all that it has."""
    with path.open("rb") as file:
        return file.read(size)
