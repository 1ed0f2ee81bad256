"""Sequences in Parquet files: lists of ids, or precomputed embeddings, read with little memory.

| column | meaning of a row |
|---|---|
| list of integers | a sequence of ids |
| list of lists of floating-point numbers | a sequence of vectors |
| list of floating-point numbers | one vector: a sequence of 1 |

Lists may be of any kind (list, large_list, fixed_size_list), numbers of any width. Null rows and empty rows are skipped
and counted. Nulls inside rows, negative ids and numbers that are not finite are errors.

Shapes: R rows, with M ids or vectors of E numbers in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gristmill.arguments import MAX_VOCAB_SIZE
from gristmill.corpus import batches
from gristmill.corpus.formats.columns import (
    BUFFER_BYTES,
    MAX_ROWS,
    PARQUET_MAGIC,
    damaged,
    opened_file,
    raise_unless_damage,
    refused,
)
from gristmill.corpus.inputs import Input
from gristmill.corpus.packages import load_pyarrow
from gristmill.errors import CorpusError

__all__ = ["Reader", "Rows", "column_types"]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some rows of a file that are neither null nor empty."""

    items: NDArray[Any]  # ids_M (uint32) or vectors_ME (float32)
    lengths_R: NDArray[np.int64]
    num_nulls: int  # skipped null rows
    num_empty: int  # skipped empty rows
    share: float  # approximate share of the file read so far


@dataclass(slots=True)
class Reader:
    """Reads the sequences of files. Remembers the dimension of the vectors, which must be the same in all files."""

    kind: Literal["tokens", "vectors"]
    columns: tuple[str, ...]
    vocab_size: int | None = None  # ids must be below it
    dims: dict[str, int] = field(default_factory=dict)  # size of the vectors by column

    def read(self, input: Input) -> Iterator[Rows]:
        """Yield the rows of a file in chunks. Raises an error before the end if the file is incomplete or changed."""
        load_pyarrow()
        with opened_file(input) as (source, file):
            first = 0
            for table, num_rows in _tables(input, file, self.columns):
                rows = self._rows(_Place(input.name, first), table)
                first += table.num_rows
                yield Rows(*rows, share=first / max(1, num_rows))
            source.check_unchanged()

    def _rows(self, place: _Place, table: Any) -> tuple[NDArray[Any], NDArray[np.int64], int, int]:
        arrays = [table.column(name) for name in self.columns]
        is_valid_R = np.ones(table.num_rows, bool)
        for array in arrays:
            if array.null_count:
                is_valid_R &= array.is_valid().to_numpy(zero_copy_only=False)
        place.rows_R = place.first + np.flatnonzero(is_valid_R)
        if not is_valid_R.all():
            arrays = [array.filter(_mask(is_valid_R)) for array in arrays]
        items, lengths_R = self._ids(place, arrays[0]) if self.kind == "tokens" else self._vectors(place, arrays)
        num_nulls = table.num_rows - len(lengths_R)
        kept_R = lengths_R[lengths_R > 0]
        return items, kept_R, num_nulls, len(lengths_R) - len(kept_R)

    # Ids

    def _ids(self, place: _Place, array: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
        import pyarrow

        place.column = self.columns[0]
        if not _is_list(array.type) or not pyarrow.types.is_integer(array.type.value_type):
            raise place.wrong_type(array.type, "lists of integers")
        lengths_R, values = _flattened(array)
        ids_M = place.without_nulls(values, lengths_R)
        limit = MAX_VOCAB_SIZE if self.vocab_size is None else self.vocab_size
        if len(ids_M) and (ids_M.min() < 0 or ids_M.max() >= limit):
            wrong = int(np.flatnonzero((ids_M < 0) | (ids_M >= limit))[0])
            why = "is negative" if ids_M[wrong] < 0 else f"is not below vocab_size={limit}"
            raise place.refused(wrong, lengths_R, f"id {ids_M[wrong]} {why}")
        return ids_M.astype("<u4"), lengths_R

    # Vectors

    def _vectors(self, place: _Place, arrays: list[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the vectors of all columns, concatenated along their last axis."""
        parts: list[NDArray[np.float32]] = []
        lengths_R = np.zeros(0, np.int64)
        for name, array in zip(self.columns, arrays, strict=True):
            place.column = name
            vectors_ME, lengths = self._vectors_of(place, array)
            if parts and (lengths != lengths_R).any():
                row = int(np.flatnonzero(lengths != lengths_R)[0])
                raise place.refused_row(
                    row, f"there are {lengths[row]:,} vectors, but {lengths_R[row]:,} in {self.columns[0]!r}"
                )
            parts.append(vectors_ME)
            lengths_R = lengths
        return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0], lengths_R

    def _vectors_of(self, place: _Place, array: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        import pyarrow

        if not (_is_vector(array.type) or (_is_list(array.type) and _is_vector(array.type.value_type))):
            raise place.wrong_type(array.type, "lists of floating-point numbers, or lists of such lists")
        if _is_vector(array.type):
            lengths_R, vectors = np.ones(len(array), np.int64), array
        else:
            lengths_R, vectors = _flattened(array)
        if vectors.null_count:
            raise place.refused(_first_null(vectors), lengths_R, "a vector is null")
        dims_M, values = _flattened(vectors)
        dim = self._dim(place, dims_M, lengths_R)
        if pyarrow.types.is_float16(values.type):
            values = values.cast(pyarrow.float32())
        with np.errstate(over="ignore"):
            numbers = place.without_nulls(values, lengths_R * dim).astype("<f4")
        if not np.isfinite(numbers).all():
            wrong = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise place.refused(wrong, lengths_R * dim, f"{values[wrong].as_py()} is not finite in float32")
        return numbers.reshape(len(dims_M), dim), lengths_R

    def _dim(self, place: _Place, dims_M: NDArray[np.int64], lengths_R: NDArray[np.int64]) -> int:
        """Return the size of the vectors of a column: that of the first vector, which all others must have."""
        if not len(dims_M):
            return self.dims.get(place.column, 0)
        dim = self.dims.setdefault(place.column, int(dims_M[0]))
        if not dim:
            raise place.refused(0, lengths_R, "a vector is empty")
        if (dims_M != dim).any():
            wrong = int(np.flatnonzero(dims_M != dim)[0])
            raise place.refused(wrong, lengths_R, f"a vector has {dims_M[wrong]:,} numbers, but others have {dim:,}")
        return dim


@dataclass(slots=True)
class _Place:
    """The rows and column being read, for errors."""

    name: str  # of the file
    first: int  # number of the first row in the file
    column: str = ""
    rows_R: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def without_nulls(self, values: Any, lengths_R: NDArray[np.int64]) -> NDArray[Any]:
        """Return the values of the rows as a numpy array."""
        if values.null_count:
            raise self.refused(_first_null(values), lengths_R, "a number is null")
        array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return array

    def refused(self, item: int, lengths_R: NDArray[np.int64], what: str) -> CorpusError:
        """Return the error for an item, given by its number among all items of the rows."""
        return self.refused_row(int(np.searchsorted(np.cumsum(lengths_R), item, side="right")), what)

    def refused_row(self, row: int, what: str) -> CorpusError:
        """Return the error for one of the rows."""
        return CorpusError(
            f"{self.name}: column {self.column!r}, row {self.rows_R[row]:,}: {what}. "
            f"Correct the row, or set it to null to skip it."
        )

    def wrong_type(self, type: Any, allowed: str) -> CorpusError:
        """Return the error for a column of a wrong type."""
        return CorpusError(f"{self.name}: column {self.column!r} has type {type}. Pass a column of {allowed}.")


def column_types(input: Input) -> dict[str, Any]:
    """Return the columns of a file and their pyarrow types."""
    load_pyarrow()
    with opened_file(input) as (_, file):
        schema = _parquet_file(input, file).schema_arrow
        return {column.name: column.type for column in schema}


def _tables(input: Input, file: Any, columns: tuple[str, ...]) -> Iterator[tuple[Any, int]]:
    """Yield chunks of rows of the columns, and the number of rows of the file."""
    import pyarrow

    opened = _parquet_file(input, file)
    _check_columns(input, opened.schema_arrow, columns)
    total_rows = opened.metadata.num_rows
    given = 0
    for group in range(opened.num_row_groups):
        about = opened.metadata.row_group(group)
        row_bytes = max(1, about.total_byte_size // max(1, about.num_rows))
        num_rows = max(1, min(MAX_ROWS, batches.BATCH_BYTES // row_bytes))
        begin = input.num_bytes * given // max(1, total_rows)
        damage = f"damaged near byte {begin:,}, in row group {group}"
        seen = 0
        try:
            for table in opened.iter_batches(num_rows, row_groups=[group], columns=list(columns), use_threads=False):
                table.validate(full=True)
                seen += table.num_rows
                yield table, total_rows
        except (pyarrow.ArrowException, OSError, UnicodeError) as error:
            raise_unless_damage(error, input.num_bytes)
            raise damaged(input, damage, begin, error) from error
        if seen != about.num_rows:
            raise damaged(input, damage, begin, f"only {seen:,} of {about.num_rows:,} rows could be read")
        given += seen
    if given != total_rows:  # the footer has no checksum
        raise damaged(input, "damaged footer", input.num_bytes, "row counts of the row groups and the file differ")


def _parquet_file(input: Input, file: Any) -> Any:
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(
            file, pre_buffer=False, buffer_size=BUFFER_BYTES, page_checksum_verification=True, memory_map=False
        )
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:
        raise refused(input, file, "Parquet file", PARQUET_MAGIC, error) from error


def _check_columns(input: Input, schema: Any, columns: tuple[str, ...]) -> None:
    names = [column.name for column in schema]
    for name in columns:
        if names.count(name) != 1:
            known = ", ".join(map(repr, names[:20])) or "none"
            how_many = "no column" if name not in names else f"{names.count(name)} columns"
            raise CorpusError(f"{input.name}: {how_many} {name!r} (columns: {known}). Pass the name of one of them.")


def _flattened(array: Any) -> tuple[NDArray[np.int64], Any]:
    """Return the length of each list, none of which is null, and the items of all lists."""
    from pyarrow import compute

    lengths = compute.list_value_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths, array.flatten()


def _is_list(type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type))


def _is_vector(type: Any) -> bool:
    from pyarrow import types

    return _is_list(type) and bool(types.is_floating(type.value_type))


def _first_null(array: Any) -> int:
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])


def _mask(is_valid_R: NDArray[np.bool_]) -> Any:
    import pyarrow

    return pyarrow.array(is_valid_R)
