r"""Megatron-LM: `train.bin`, raw tokens, and `train.idx`, the index of its `IndexedDataset`.

    b"MMIDIDX\0\0" · u64 1 · u8 dtype code · u64 sequences · u64 document indices
    int32 length[sequences] · int64 byte pointer[sequences] · int64 document index[documents + 1]

A document, its end-of-text id included, is one sequence, so the document indices are 0, 1, 2, ….
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import CorpusError, ShardsFormatError
from gristmill.shards.layouts.layout import CHUNK_ITEMS, INT32, INT64, UINT16, Layout, Part, read_chunks
from gristmill.shards.maps import map_array

MAGIC = b"MMIDIDX\0\0"
HEADER = struct.Struct("<9sQBQQ")
CODES = {UINT16: 8, INT32: 4}
# Megatron itself leaves this margin below 2^16.
NUM_UINT16 = 65_500
MAX_LENGTH = 2**31 - 1


class MegatronLayout(Layout):
    """Raw tokens, one file a split, and Megatron's index."""

    name = "megatron"
    shard_tokens = None

    def dtype(self, vocab_size: int) -> np.dtype[Any]:
        """uint16 below a vocabulary of 65,500, otherwise int32: there is no code for uint32."""
        return UINT16 if vocab_size < NUM_UINT16 else INT32

    def token_file(self, name: str, split: str, number: int) -> str:
        """`train.bin`."""
        assert number == 0
        return f"{split}.bin"

    def index_file(self, name: str, split: str, number: int) -> str:
        """`train.idx`."""
        assert number == 0
        return f"{split}.idx"

    def write_index(self, file: BinaryIO, part: Part) -> None:
        """Write the index, reading the document ends twice: once for the lengths, once for the pointers."""
        file.write(_header(part.num_documents, part.dtype))
        for begins, ends in _stretches(read_chunks(part.ends)):
            lengths = ends - begins
            if lengths.max() > MAX_LENGTH:
                raise CorpusError(
                    f"a document has {lengths.max():,} tokens, and the format 'megatron' counts them up to "
                    f"{MAX_LENGTH:,}. Cut the document, or pass format='gristmill'."
                )
            file.write(lengths.astype(INT32).data)
        for begins, _ in _stretches(read_chunks(part.ends)):
            file.write((begins * part.dtype.itemsize).data)
        for first in range(0, part.num_documents + 1, CHUNK_ITEMS):
            file.write(np.arange(first, min(first + CHUNK_ITEMS, part.num_documents + 1), dtype=INT64).data)

    def index_bytes(self, num_documents: int) -> int:
        """A header, a length, a pointer and an index for each document, and one index more."""
        return HEADER.size + 12 * num_documents + 8 * (num_documents + 1)

    def read_ends(self, path: Path, num_documents: int, dtype: np.dtype[Any]) -> Iterator[NDArray[np.int64]]:
        """The sums of the lengths, once the header, the pointers and the document indices agree with them."""
        data = map_array(path, np.dtype("u1"), self.index_bytes(num_documents))
        if data[: HEADER.size].tobytes() != _header(num_documents, dtype):
            raise ShardsFormatError("its header is not that of the dtype and the number of documents in the manifest.")
        lengths, pointers, indices = _sections(data, num_documents)
        begin = 0
        for first in range(0, num_documents, CHUNK_ITEMS):
            some = slice(first, first + CHUNK_ITEMS)
            ends = begin + np.cumsum(lengths[some], dtype=INT64)
            begins = np.concatenate([[begin], ends[:-1]])
            if (pointers[some] != begins * dtype.itemsize).any():
                raise ShardsFormatError("its byte pointers do not follow from its lengths.")
            if (indices[:-1][some] != np.arange(first, first + len(ends))).any():
                raise ShardsFormatError("its document indices are not 0, 1, 2, ….")
            begin = int(ends[-1])
            yield ends
        if indices[-1] != num_documents:
            raise ShardsFormatError(f"its last document index is {indices[-1]}, not {num_documents}.")


def _header(num_documents: int, dtype: np.dtype[Any]) -> bytes:
    return HEADER.pack(MAGIC, 1, CODES[dtype], num_documents, num_documents + 1)


def _sections(data: NDArray[np.uint8], num_documents: int) -> list[NDArray[Any]]:
    sections, begin = [], HEADER.size
    for dtype, length in ((INT32, num_documents), (INT64, num_documents), (INT64, num_documents + 1)):
        end = begin + length * dtype.itemsize
        sections.append(data[begin:end].view(dtype))
        begin = end
    return sections


def _stretches(chunks: Iterator[NDArray[np.int64]]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Where documents begin and end: each begins where the one before ends."""
    last = np.zeros(1, INT64)
    for ends in chunks:
        yield np.concatenate([last, ends[:-1]]), ends
        last = ends[-1:]
