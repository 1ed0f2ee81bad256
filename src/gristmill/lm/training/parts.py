"""Parts: tensors of a checkpoint with their rows in several files, one per process of a sharded run.

    model.parts.json                        for each tensor: type, shape, and which rows are in which file
    model.part-00001-of-00002.safetensors   the rows of the first process
    model.part-00002-of-00002.safetensors   the rows of the second process

In this module the name "model.safetensors" means either form: a single file, or these parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gristmill.lm.training.tensor_files import DTYPES, DamagedFileError, Kind, check_file, open_tensors

__all__ = ["OpenFiles", "Rows", "Stored", "index_name", "is_in_parts", "part_name", "part_names", "stored_tensors"]

_MAX_INDEX_BYTES = 1 << 28


@dataclass(frozen=True)
class Rows:
    """Rows of a tensor in a file, from `begin` up to `end`. A scalar counts as one row."""

    file: str
    begin: int
    end: int


@dataclass(frozen=True)
class Stored:
    """A tensor in a checkpoint, and the files of its rows: in order, each row once."""

    kind: Kind
    rows: tuple[Rows, ...]


def num_rows(shape: Sequence[int]) -> int:
    """Return the number of rows of a tensor. A scalar has one row."""
    return shape[0] if shape else 1


def index_name(name: str) -> str:
    """Return the name of the index file, which lists the rows in each part.

    >>> index_name("model.safetensors")
    'model.parts.json'
    """
    return f"{Path(name).stem}.parts.json"


def part_name(name: str, number: int, num_parts: int) -> str:
    """Return the file name of a part, counted from 0.

    >>> part_name("model.safetensors", 0, 2)
    'model.part-00001-of-00002.safetensors'
    """
    return f"{Path(name).stem}.part-{number + 1:05d}-of-{num_parts:05d}.safetensors"


def is_in_parts(name: str, files: Mapping[str, Any]) -> bool:
    """Return whether the tensors of `name` are in parts, given the files of a checkpoint."""
    return name not in files and index_name(name) in files


def part_names(name: str, files: Mapping[str, Any]) -> list[str]:
    """Return the parts of `name` among the files of a checkpoint."""
    return [file for file in files if file.startswith(f"{Path(name).stem}.part-") and file.endswith(".safetensors")]


def index_of(stored: Mapping[str, Stored]) -> dict[str, Any]:
    """Return the content of the index file."""
    files = sorted({rows.file for each in stored.values() for rows in each.rows})
    numbers, names = (
        {file: number for number, file in enumerate(files)},
        {dtype: name for name, dtype in DTYPES.items()},
    )
    tensors = {
        name: {
            "dtype": names[each.kind.dtype],
            "shape": list(each.kind.shape),
            "parts": [[numbers[rows.file], rows.begin, rows.end] for rows in each.rows],
        }
        for name, each in sorted(stored.items())
    }
    return {"files": files, "tensors": tensors}


def stored_tensors(folder: Path, name: str, files: Mapping[str, Any]) -> dict[str, Stored]:
    """Return the locations of the tensors of `name`, in one file or in parts.

    Raises `DamagedFileError` if the index is invalid. Verifies the checksum of the small index, but only the sizes of
    other files. No tensor is larger than its files.
    """
    if not is_in_parts(name, files):
        check_file(folder / name, files[name], checksum=False)
        return _stored_whole(folder, name)
    path = folder / index_name(name)
    check_file(path, files[path.name])
    for part in part_names(name, files):
        check_file(folder / part, files[part], checksum=False)
    return _parsed(path, set(part_names(name, files)))


def _stored_whole(folder: Path, name: str) -> dict[str, Stored]:
    found = {}
    with open_tensors(folder / name) as file:
        for key in list(file.keys()):
            kind = _kind_in(folder / name, file, key)
            found[key] = Stored(kind, (Rows(name, 0, num_rows(kind.shape)),))
    return found


def _kind_in(path: Path, file: Any, key: str) -> Kind:
    part = file.get_slice(key)
    if part.get_dtype() not in DTYPES:
        raise DamagedFileError(path, f"{key!r} has type {part.get_dtype()}, which checkpoints do not use")
    return Kind(DTYPES[part.get_dtype()], tuple(part.get_shape()))


def _parsed(path: Path, known: set[str]) -> dict[str, Stored]:
    from gristmill.errors import CheckpointError
    from gristmill.small_files import parse_json, read_small_file

    data = read_small_file(path, what="an index of parts", max_bytes=_MAX_INDEX_BYTES, error=CheckpointError)
    try:
        content = parse_json(data, error=CheckpointError)
        files = [str(file) for file in content["files"]]
        found = {str(name): _parsed_tensor(each, files) for name, each in content["tensors"].items()}
    except (CheckpointError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(path, f"not an index of parts ({error})") from None
    if not set(files) <= known:
        raise DamagedFileError(path, f"lists {sorted(set(files) - known)[0]!r}, which is not a part")
    for name, each in found.items():
        if not _is_covered(each):
            raise DamagedFileError(path, f"the parts do not contain each row of {name!r} exactly once")
    return found


def _parsed_tensor(entry: Mapping[str, Any], files: Sequence[str]) -> Stored:
    rows = tuple(Rows(files[number], int(begin), int(end)) for number, begin, end in entry["parts"])
    return Stored(Kind(DTYPES[entry["dtype"]], tuple(int(size) for size in entry["shape"])), rows)


def _is_covered(stored: Stored) -> bool:
    """Return whether each row is in exactly one file, and each file is listed once, so that it is read only once."""
    ends = [0, *(rows.end for rows in stored.rows)]
    in_order = all(begin == rows.begin <= rows.end for begin, rows in zip(ends, stored.rows, strict=False))
    num_files = len({rows.file for rows in stored.rows})
    return in_order and ends[-1] == num_rows(stored.kind.shape) and num_files == len(stored.rows) > 0


class OpenFiles(contextlib.ExitStack):
    """The files of a checkpoint, opened when they are first needed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self._files = folder, dict[Path, tuple[Any, frozenset[str]]]()

    def whole(self, name: str, stored: Stored) -> Tensor:
        """Return the tensor with all its rows."""
        parts = [self.rows(name, stored, rows, rows.begin, rows.end) for rows in stored.rows]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def rows(self, name: str, stored: Stored, rows: Rows, begin: int, end: int) -> Tensor:
        """Return rows `begin` to `end` of the tensor, which must be in `rows`. Reads nothing else."""
        path, shape = self._folder / rows.file, stored.kind.shape
        file, names = self._opened(path)
        if name not in names:
            raise DamagedFileError(path, f"has no {name!r}")
        there = _kind_in(path, file, name)
        needed = Kind(stored.kind.dtype, (rows.end - rows.begin, *shape[1:]) if shape else ())
        if there != needed:
            raise DamagedFileError(
                path, f"{name!r} is {there.dtype} {list(there.shape)} instead of {needed.dtype} {list(needed.shape)}"
            )
        if (begin, end) == (rows.begin, rows.end):
            return file.get_tensor(name)  # type: ignore[no-any-return]
        return file.get_slice(name)[begin - rows.begin : end - rows.begin]  # type: ignore[no-any-return]

    def _opened(self, path: Path) -> tuple[Any, frozenset[str]]:
        if path not in self._files:
            file = self.enter_context(open_tensors(path))
            self._files[path] = file, frozenset(file.keys())
        return self._files[path]
