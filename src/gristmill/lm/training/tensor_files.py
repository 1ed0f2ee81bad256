"""Tensor files: safetensors files that are written with their checksum, and checked against it before they are read."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from gristmill._core import Xxh64
from gristmill.packages import packages_for

__all__ = [
    "DTYPES",
    "DamagedFileError",
    "Kind",
    "check_file",
    "file_checksum",
    "flush",
    "kinds_of",
    "open_tensors",
    "write_tensors",
]

_BLOCK_BYTES = 1 << 22
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
DTYPES = {name: dtype for dtype, name in _NAMES.items()}


class DamagedFileError(Exception):
    """A file that is not what was written. `path` and `what` become a `CheckpointError` that says what to do."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(path, what)  # as arguments: it travels between processes
        self.path, self.what = path, what


@dataclass(frozen=True)
class Kind:
    """Type and shape of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The size of its numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


def kinds_of(tensors: Mapping[str, Tensor]) -> dict[str, Kind]:
    """Type and shape of each tensor."""
    return {name: Kind(tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def write_tensors(path: Path, kinds: Mapping[str, Kind], tensor_of: Callable[[str], Tensor]) -> dict[str, Any]:
    """Write the tensors that `tensor_of` gives, one at a time, and return the size and the checksum of the file.

    By hand, because the checksum is taken on the way, and each write lets other threads run: training continues.
    """
    # Wide types first, so that all are aligned; then by name, so that the same tensors give the same bytes.
    names = sorted(kinds, key=lambda name: (-kinds[name].dtype.itemsize, name))
    header: dict[str, Any] = {}
    end = 0
    for name in names:
        begin, end = end, end + kinds[name].nbytes
        dtype = _NAMES[kinds[name].dtype]
        header[name] = {"dtype": dtype, "shape": list(kinds[name].shape), "data_offsets": [begin, end]}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    digest = Xxh64()
    with path.open("wb") as file:
        for data in _blocks(len(head).to_bytes(8, "little") + head, names, tensor_of):
            digest.update(data)
            file.write(data)
        flush(file)
    return {"bytes": 8 + len(head) + end, "xxh64": digest.hexdigest()}


def _blocks(head: bytes, names: list[str], tensor_of: Callable[[str], Tensor]) -> Iterator[Any]:
    yield head
    for name in names:
        yield tensor_of(name).detach().contiguous().reshape(-1).view(torch.uint8).numpy()


def flush(file: BinaryIO) -> None:
    """Return when what was written is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def check_file(path: Path, entry: Mapping[str, Any], *, checksum: bool = True) -> None:
    """Raise `DamagedFileError` unless the file has the size, and with `checksum` the bytes, that `entry` records."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise DamagedFileError(path, "it is missing") from None
    if size != entry["bytes"]:
        raise DamagedFileError(path, f"it has {size:,} bytes and should have {entry['bytes']:,}")
    if checksum and file_checksum(path) != entry["xxh64"]:
        raise DamagedFileError(path, "its checksum does not fit")


def file_checksum(path: Path) -> str:
    """The XXH64 of a file, in hexadecimal."""
    digest = Xxh64()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """The file for `get_tensor` and `get_slice` of safetensors; what these raise is `DamagedFileError`."""
    with packages_for("reading a checkpoint"):
        from safetensors import SafetensorError, safe_open
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise DamagedFileError(path, f"it is not a safetensors file: {error}") from None
