r"""Megatron-LM: `train.bin`, raw tokens, and `train.idx`, the index of its `IndexedDataset`.

    b"MMIDIDX\0\0" · u64 1 · u8 dtype code · u64 sequences · u64 document indices
    int32 length[sequences] · int64 byte pointer[sequences] · int64 document index[documents + 1]

A document, including its end-of-text id, is one sequence, so the document indices are 0, 1, 2, …. Other programs may
write several sequences per document; `document_ends` reads these too. A foreign file is recognized by its index.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import CorpusError, ShardsFormatError
from gristmill.shards.layouts.layout import (
    CHUNK_ITEMS,
    INT32,
    INT64,
    UINT16,
    FoundFile,
    Layout,
    Part,
    read_chunks,
    read_head,
)
from gristmill.shards.maps import map_array

MAGIC = b"MMIDIDX\0\0"
HEADER = struct.Struct("<9sQBQQ")
CODES = {UINT16: 8, INT32: 4}
DTYPES = {1: "<u1", 4: "<i4", 5: "<i8", 8: "<u2"}  # of ids; 2 and 3 are too narrow, 6 and 7 are floats
# The same margin below 2^16 as in Megatron.
NUM_UINT16 = 65_500
MAX_LENGTH = 2**31 - 1


class MegatronLayout(Layout):
    """Raw tokens, one file per split, and Megatron's index."""

    name = "megatron"
    shard_tokens = None

    def dtype(self, vocab_size: int) -> np.dtype[Any]:
        """Return uint16 for a vocabulary below 65,500, otherwise int32: Megatron has no code for uint32."""
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
        """Return the size of a header, a length, a pointer and an index per document, and one more index."""
        return HEADER.size + 12 * num_documents + 8 * (num_documents + 1)

    def read_ends(self, path: Path, num_documents: int, dtype: np.dtype[Any]) -> Iterator[NDArray[np.int64]]:
        """Yield the cumulative lengths; raise if the header, the pointers or the document indices contradict them."""
        data = map_array(path, np.dtype("u1"), self.index_bytes(num_documents))
        if data[: HEADER.size].tobytes() != _header(num_documents, dtype):
            raise ShardsFormatError("its header does not match the dtype and the number of documents in the manifest.")
        lengths, pointers, indices = _sections(data, num_documents, num_documents)
        begin = 0
        for first in range(0, num_documents, CHUNK_ITEMS):
            some = slice(first, first + CHUNK_ITEMS)
            ends = begin + np.cumsum(lengths[some], dtype=INT64)
            begins = np.concatenate([[begin], ends[:-1]])
            if (pointers[some] != begins * dtype.itemsize).any():
                raise ShardsFormatError("its byte pointers do not match its lengths.")
            if (indices[:-1][some] != np.arange(first, first + len(ends))).any():
                raise ShardsFormatError("its document indices are not 0, 1, 2, ….")
            begin = int(ends[-1])
            yield ends
        if indices[-1] != num_documents:
            raise ShardsFormatError(f"its last document index is {indices[-1]}, not {num_documents}.")

    def document_ends(self, path: Path, num_documents: int) -> NDArray[np.int64]:
        """Return the cumulative lengths of all sequences up to the last one of each document."""
        data = map_array(path, np.dtype("u1"), path.stat().st_size)
        _, num_sequences, _ = _fields(path)
        lengths, _, indices = _sections(data, num_sequences, num_documents)
        sums = np.concatenate([[0], np.cumsum(lengths, dtype=INT64)])
        if indices[0] != 0 or indices[-1] != num_sequences or (np.diff(indices) < 0).any():
            raise ShardsFormatError(f"{path}: its document indices do not increase from 0 to {num_sequences:,}. {COPY}")
        ends: NDArray[np.int64] = sums[indices[1:]]
        return ends

    def find_files(self, folder: Path, names: Sequence[str]) -> list[FoundFile]:
        """Return the pairs `X.bin` and `X.idx` whose index has Megatron's magic."""
        there = set(names)
        indexes = [name for name in names if name.endswith(".idx") and f"{name[:-4]}.bin" in there]
        return [_found(folder / name) for name in indexes if read_head(folder / name, len(MAGIC)) == MAGIC]


COPY = "Copy it again if it is truncated."


def _found(index: Path) -> FoundFile:
    path = index.with_suffix(".bin")
    dtype, num_sequences, num_documents = _fields(index)
    data = map_array(index, np.dtype("u1"), index.stat().st_size)
    lengths, pointers, _ = _sections(data, num_sequences, num_documents)
    if num_sequences and int(lengths.min()) < 0:
        raise ShardsFormatError(
            f"{index}: sequence {int(lengths.argmin()):,} has the negative length {int(lengths.min()):,}: the index "
            f"is damaged. Copy it again, or make it again."
        )
    num_tokens = int(lengths.sum(dtype=INT64))
    if path.stat().st_size != num_tokens * dtype.itemsize:
        raise ShardsFormatError(
            f"{path}: its index counts {num_tokens:,} {dtype.name} tokens, which take {num_tokens * dtype.itemsize:,} "
            f"bytes, but its size is {path.stat().st_size:,}. {COPY}"
        )
    if num_sequences and int(pointers[-1]) + int(lengths[-1]) * dtype.itemsize != num_tokens * dtype.itemsize:
        raise ShardsFormatError(
            f"{index}: its sequences are not contiguous, which Gristmill cannot read. Make the files again with "
            f"Megatron's preprocess_data.py."
        )
    return FoundFile(path.name, num_tokens, dtype, index.name, num_documents)


def _fields(index: Path) -> tuple[np.dtype[Any], int, int]:
    """Return (dtype, number of sequences, number of documents) in the header of an index; raise if its size differs."""
    head = read_head(index, HEADER.size)
    if len(head) < HEADER.size:
        raise ShardsFormatError(f"{index}: a Megatron index has at least {HEADER.size} bytes. {COPY}")
    _, version, code, num_sequences, num_indices = HEADER.unpack(head)
    if version != 1 or code not in DTYPES:
        raise ShardsFormatError(
            f"{index}: version {version} with dtype code {code} is not supported; Gristmill reads version 1 with the "
            f"codes {', '.join(map(str, DTYPES))}."
        )
    expected = HEADER.size + 12 * num_sequences + 8 * num_indices
    if num_indices < 1 or index.stat().st_size != expected:
        raise ShardsFormatError(
            f"{index}: its header counts {num_sequences:,} sequences and {num_indices:,} document indices, which take "
            f"{expected:,} bytes, but its size is {index.stat().st_size:,}. {COPY}"
        )
    return np.dtype(DTYPES[code]), num_sequences, num_indices - 1


def _header(num_documents: int, dtype: np.dtype[Any]) -> bytes:
    return HEADER.pack(MAGIC, 1, CODES[dtype], num_documents, num_documents + 1)


def _sections(data: NDArray[np.uint8], num_sequences: int, num_documents: int) -> list[NDArray[Any]]:
    """Lengths, byte pointers and document indices."""
    sections, begin = [], HEADER.size
    for dtype, length in ((INT32, num_sequences), (INT64, num_sequences), (INT64, num_documents + 1)):
        end = begin + length * dtype.itemsize
        sections.append(data[begin:end].view(dtype))
        begin = end
    return sections


def _stretches(chunks: Iterator[NDArray[np.int64]]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the begins and ends of documents: each begins where the previous one ends."""
    last = np.zeros(1, INT64)
    for ends in chunks:
        yield np.concatenate([last, ends[:-1]]), ends
        last = ends[-1:]
