"""datatrove: `train-00000.ds`, raw tokens, and `train-00000.ds.index`, the document ends as uint64; whole documents.

`DatatroveFolderDataset(folder)` reads every `*.ds` of a folder, so validation files have another ending: `.ds-val`.
A foreign file is recognized by its ending. The width of its tokens comes from its index or, without one, from its
`.ds.metadata`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.errors import ShardsFormatError
from gristmill.shards.layouts.layout import INT64, UINT16, UINT32, FoundFile, Layout, read_head
from gristmill.small_files import open_regular

ENDINGS = {"train": ".ds", "val": ".ds-val"}
METADATA_BYTES = 4096


class DatatroveLayout(Layout):
    """Raw tokens, and the document ends beside them, whose bytes are the same as int64 and uint64."""

    name = "datatrove"
    splits_documents = False

    def token_file(self, name: str, split: str, number: int) -> str:
        """`train-00000.ds`, `val-00000.ds-val`."""
        return f"{split}-{number:05}{ENDINGS[split]}"

    def index_file(self, name: str, split: str, number: int) -> str:
        """`train-00000.ds.index`."""
        return f"{self.token_file(name, split, number)}.index"

    def find_files(self, folder: Path, names: Sequence[str]) -> list[FoundFile]:
        """Return the files that end in `.ds`."""
        return [_found(folder / name, names) for name in names if name.endswith(tuple(ENDINGS.values()))]


def _found(path: Path, names: Sequence[str]) -> FoundFile:
    index = f"{path.name}.index"
    if index not in names:
        dtype = _dtype_of_metadata(path, names)
        return FoundFile(path.name, _num_tokens(path, dtype), dtype)
    num_documents, rest = divmod((path.parent / index).stat().st_size, INT64.itemsize)
    last = _last_end(path.parent / index) if num_documents and not rest else 0
    num_bytes = path.stat().st_size
    for dtype in (UINT16, UINT32):
        if not rest and num_bytes == last * dtype.itemsize:
            return FoundFile(path.name, last, dtype, index, num_documents)
    raise ShardsFormatError(
        f"{path}: its index counts {last:,} tokens of 2 or 4 bytes, but its size is {num_bytes:,} bytes. Copy both "
        f"again if one is truncated."
    )


def _last_end(index: Path) -> int:
    with open_regular(index, error=ShardsFormatError) as file:
        file.seek(-INT64.itemsize, 2)
        return int.from_bytes(file.read(), "little")


def _num_tokens(path: Path, dtype: np.dtype[Any]) -> int:
    num_tokens, rest = divmod(path.stat().st_size, dtype.itemsize)
    if rest:
        raise ShardsFormatError(f"{path}: its size is not a multiple of {dtype.itemsize} bytes. Copy it again.")
    return num_tokens


def _dtype_of_metadata(path: Path, names: Sequence[str]) -> np.dtype[Any]:
    """Return the type of the tokens. The first line of the metadata is `TOKENIZER|BYTES`, with the bytes per token."""
    name = f"{path.name}.metadata"
    if name in names:
        first = read_head(path.parent / name, METADATA_BYTES).partition(b"\n")[0]
        width = first.rpartition(b"|")[2].strip()
        if width in (b"2", b"4"):
            return UINT16 if width == b"2" else UINT32
    raise ShardsFormatError(
        f"{path}: neither {path.name}.index nor {path.name}.metadata exists to state whether a token takes 2 or 4 "
        f"bytes. Put one of them beside it."
    )
