"""Tensor files: safetensors files with a checksum that is computed while writing and verified before reading."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
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
_MAX_CHARACTERS = 1000  # of a description; the names in a damaged file may be longer
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
    """A file that differs from what was written. `path` and `what` become part of a `CheckpointError` with advice."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(path, what)  # as arguments, because the error is pickled between processes
        self.path, self.what = path, what if len(what) <= _MAX_CHARACTERS else f"{what[:_MAX_CHARACTERS]}…"


@dataclass(frozen=True)
class Kind:
    """Type and shape of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def kinds_of(tensors: Mapping[str, Tensor]) -> dict[str, Kind]:
    """Return the type and shape of each tensor."""
    return {name: Kind(tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def write_tensors(path: Path, kinds: Mapping[str, Kind], tensor_of: Callable[[str], Tensor]) -> dict[str, Any]:
    """Write the tensors that `tensor_of` returns to a new file, and return the size and checksum of the file.

    Only one tensor is in memory at a time. A link at `path`, planted by the author of a run, is an error.

    Does not use the safetensors library, because the checksum is computed while writing, and each write releases the
    GIL so that training continues.
    """
    # Sorted by descending item size for alignment, then by name, so that the same tensors give the same bytes.
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
    with path.open("xb") as file:
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
    """Flush the file to disk."""
    file.flush()
    os.fsync(file.fileno())


def check_file(path: Path, entry: Mapping[str, Any], *, checksum: bool = True) -> None:
    """Raise `DamagedFileError` unless the file has the size, and with `checksum` the checksum, in `entry`."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise DamagedFileError(path, "missing") from None
    if not stat.S_ISREG(status.st_mode):  # reading a pipe or device may never end
        raise DamagedFileError(path, "not a regular file")
    if status.st_size != entry["bytes"]:
        raise DamagedFileError(path, f"has {status.st_size:,} bytes instead of {entry['bytes']:,}")
    if checksum and file_checksum(path) != entry["xxh64"]:
        raise DamagedFileError(path, "checksum mismatch")


def file_checksum(path: Path) -> str:
    """Return the XXH64 of a file, in hexadecimal."""
    digest = Xxh64()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Yield the open safetensors file. Its errors are raised as `DamagedFileError`."""
    with packages_for("reading a checkpoint"):
        from safetensors import SafetensorError, safe_open
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise DamagedFileError(path, f"not a safetensors file: {error}") from None
