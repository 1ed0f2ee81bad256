"""Tables, columns and arrays of other libraries as documents: pyarrow, pandas, polars, datasets and NumPy.

Libraries are recognised by the names of their modules, so this module does not import them. Data in Arrow buffers is
used in place. All other data goes through Python, about a thousand rows at a time.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gristmill.corpus import batches
from gristmill.corpus.documents import FIELD_OPTIONS, DocumentStream, RowStream, TextStream, explain_missing
from gristmill.corpus.formats.columns import (
    MAX_ROWS,
    ColumnBatch,
    as_binary,
    cut_rows,
    find_column,
    may_be_text,
    offsets,
)
from gristmill.corpus.packages import load_pyarrow
from gristmill.errors import CorpusError

# Rows whose offsets are widened at once. Their text is not copied.
MANY_ROWS = 64 * MAX_ROWS


def open_table(corpus: Any, text_field: str) -> DocumentStream | None:
    """Return the documents of a table, a column or an array; None for any other object."""
    for library, open_ in OPENERS.items():
        names = {kind.__name__ for kind in type(corpus).__mro__ if kind.__module__.partition(".")[0] == library}
        if names:
            return open_(corpus, names, text_field)
    if hasattr(corpus, "__arrow_c_stream__"):
        return _table(load_pyarrow().RecordBatchReader.from_stream(corpus), text_field)
    if hasattr(corpus, "columns") and (hasattr(corpus, "dtypes") or hasattr(corpus, "schema")):
        raise TypeError(
            f"a {type(corpus).__module__}.{type(corpus).__name__} is a table of an unsupported type. "
            f"Pass the values of its text column, or a pyarrow, pandas or polars table."
        )
    return None


@dataclass(frozen=True)
class ColumnStream(DocumentStream):
    """Documents in Arrow arrays."""

    arrays: Iterable[Any]  # pyarrow arrays of any text type
    what: str = "a column"
    options: frozenset[str] = frozenset()

    def read_batches(self, batch_bytes: int | None = None) -> Iterator[ColumnBatch]:
        """Yield batches of about `batch_bytes`, without copying the text."""
        row = position = 0
        for array in chain.from_iterable(map(as_binary, _sliced(self.arrays))):
            for begin, end in cut_rows(array, batch_bytes or batches.BATCH_BYTES):
                part = array.slice(begin, end - begin)
                begins, ends = offsets(part)
                position += int(ends[-1] - begins[0])
                yield ColumnBatch.from_array(part, row, position)
                row += end - begin


def _sliced(arrays: Iterable[Any]) -> Iterator[Any]:
    """Yield the arrays in slices, so that the result of `as_binary` takes little memory."""
    import pyarrow

    for array in arrays:
        for chunk in array.chunks if isinstance(array, pyarrow.ChunkedArray) else [array]:
            num_rows = MANY_ROWS if _shares_text(chunk.type) else MAX_ROWS
            yield from (chunk.slice(begin, num_rows) for begin in range(0, len(chunk), num_rows))


def _shares_text(type: Any) -> bool:
    """Whether `as_binary` does not copy the text of an array of this type."""
    from pyarrow import types

    return any(is_(type) for is_ in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary))


def _table(table: Any, text_field: str) -> DocumentStream:
    """Return the documents of a pyarrow table, or of a reader of its batches."""
    name = find_column("the table", text_field, table.schema).name
    return ColumnStream((batch.column(name) for batch in _record_batches(table, name)), "a table", FIELD_OPTIONS)


def _record_batches(table: Any, name: str) -> Any:
    import pyarrow

    if isinstance(table, pyarrow.RecordBatch):
        return [table]
    if isinstance(table, pyarrow.Table):
        return table.select([name]).to_batches()
    if isinstance(table, pyarrow.RecordBatchReader):
        return table
    return table.to_batches(columns=[name], batch_size=MAX_ROWS)  # a dataset of files, which are read lazily


def _open_pyarrow(corpus: Any, names: set[str], text_field: str) -> DocumentStream | None:
    if names & {"Array", "ChunkedArray"}:
        return _column(corpus, f"a pyarrow {type(corpus).__name__}")
    if names & {"Table", "RecordBatch", "RecordBatchReader", "Dataset"}:
        return _table(corpus, text_field)
    if "Scanner" in names:
        return _table(corpus.to_reader(), text_field)
    return None


def _column(array: Any, what: str) -> DocumentStream:
    """Return the documents of a pyarrow column."""
    _check_arrow_type(array.type, what)
    return ColumnStream([array], what)


def _check_arrow_type(type: Any, what: str) -> None:
    if not may_be_text(type):
        raise CorpusError(f"{what} is of type {type}, but only strings and bytes are text. Pass a column of text.")


def _open_pandas(corpus: Any, names: set[str], text_field: str) -> DocumentStream | None:
    if "DataFrame" in names:
        column = _named_column(corpus, list(corpus.columns), text_field, corpus.dtypes)
        return _pandas_column(column, "a DataFrame", f"column {text_field!r} of the table", FIELD_OPTIONS)
    if "MultiIndex" in names:
        raise TypeError(
            f"a MultiIndex of {corpus.nlevels} levels is not a corpus. Pass one of its levels, such as "
            f"index.get_level_values(0)."
        )
    if names & {"Series", "Index"}:
        return _pandas_column(corpus, f"a {type(corpus).__name__}", f"a {type(corpus).__name__}")
    return None


def _named_column(table: Any, columns: list[Any], text_field: str, types: Iterable[Any]) -> Any:
    """Return a column of a data frame. Raises CorpusError if no column, or several, have this name."""
    if text_field not in columns:
        holds_text = (str(type).lower().startswith(("str", "object", "categor")) for type in types)
        raise CorpusError(
            f"the table: {explain_missing('column', text_field, dict(zip(columns, holds_text, strict=True)))}"
        )
    if columns.count(text_field) > 1:
        raise CorpusError(
            f"the table has {columns.count(text_field)} columns named {text_field!r}. Rename all but one."
        )
    return table[text_field]


def _pandas_column(column: Any, what: str, name: str, options: frozenset[str] = frozenset()) -> DocumentStream:
    categories = getattr(column.dtype, "categories", None)  # of a Categorical, whose dtype does not give the value type
    dtype = column.dtype if categories is None else categories.dtype
    if len(column):  # an empty column may be of any type
        _check_kind(dtype, name)
    values = getattr(column, "array", column)
    parts = (values[begin : begin + MAX_ROWS] for begin in range(0, len(values), MAX_ROWS))
    if str(dtype) != "object" and _has_pyarrow():
        return ColumnStream((_arrow_array(part, name) for part in parts), what, options)
    return _python_values(parts, what, options)


def _check_kind(dtype: Any, what: str) -> None:
    """Raise unless values of this NumPy or pandas dtype may be text."""
    if getattr(dtype, "kind", "O") not in "OSTU":
        raise CorpusError(f"{what} is of type {dtype}, but only strings and bytes are text. Pass a column of text.")


def _python_values(parts: Iterable[Any], what: str, options: frozenset[str] = frozenset()) -> DocumentStream:
    return TextStream(chain.from_iterable(part.tolist() for part in parts), what, options, has_nulls=True)


def _arrow_array(values: Any, what: str) -> Any:
    """Return pandas values as a pyarrow array, without a copy if they already are one."""
    import pyarrow

    array = pyarrow.array(values, from_pandas=True)
    _check_arrow_type(array.type, what)
    return array


def _has_pyarrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def _open_polars(corpus: Any, names: set[str], text_field: str) -> DocumentStream | None:
    if "LazyFrame" in names:
        raise TypeError("a LazyFrame is a query, not a table. Pass frame.collect().")
    if "DataFrame" in names:
        column = _named_column(corpus, corpus.columns, text_field, corpus.dtypes)
        return _polars_column(column, "a DataFrame", f"column {text_field!r} of the table", FIELD_OPTIONS)
    return _polars_column(corpus, "a Series", "a Series") if "Series" in names else None


def _polars_column(column: Any, what: str, name: str, options: frozenset[str] = frozenset()) -> DocumentStream:
    kind = type(column.dtype).__name__ if not isinstance(column.dtype, type) else column.dtype.__name__
    if kind not in ("String", "Binary", "Categorical", "Enum", "Object", "Null"):
        raise CorpusError(
            f"{name} is of type {column.dtype}, but only strings and bytes are text. Pass a column of text."
        )
    parts = (column.slice(begin, MAX_ROWS) for begin in range(0, len(column), MAX_ROWS))
    if kind != "Object" and _has_pyarrow():
        return ColumnStream((part.to_arrow() for part in parts), what, options)
    return TextStream(chain.from_iterable(part.to_list() for part in parts), what, options, has_nulls=True)


def _open_datasets(corpus: Any, names: set[str], text_field: str) -> DocumentStream | None:
    if names & {"DatasetDict", "IterableDatasetDict"}:
        splits = ", ".join(map(repr, corpus)) or "none"
        one = next(iter(corpus), "train")
        raise TypeError(f"a {type(corpus).__name__} has several splits ({splits}). Pass one, such as data[{one!r}].")
    if "Column" in names:
        return TextStream(corpus, "a column", has_nulls=True)
    if not names & {"Dataset", "IterableDataset"}:
        return None
    if "Dataset" in names and corpus.format["type"] == "custom":  # a user's transform creates the rows
        return RowStream(corpus, text_field, "a dataset")
    if corpus.features is not None:  # an IterableDataset may not know its features
        find_column("the dataset", text_field, corpus.features.arrow_schema)
        corpus = corpus.select_columns([text_field])  # other columns, such as images, would be decoded for each row
    if "IterableDataset" in names:
        return RowStream(corpus, text_field, "a dataset")
    tables = corpus.with_format("arrow").iter(batch_size=MAX_ROWS)
    return ColumnStream((table.column(text_field) for table in tables), "a dataset", FIELD_OPTIONS)


def _open_numpy(corpus: Any, names: set[str], text_field: str) -> DocumentStream | None:
    if "ndarray" not in names:
        return None
    if corpus.ndim != 1:
        raise TypeError(
            f"an array of {corpus.ndim} dimensions is not a corpus. Pass a one-dimensional array of str or bytes."
        )
    _check_kind(corpus.dtype, "the array")
    return _python_values((corpus[begin : begin + MAX_ROWS] for begin in range(0, len(corpus), MAX_ROWS)), "an array")


OPENERS: dict[str, Callable[[Any, set[str], str], DocumentStream | None]] = {
    "datasets": _open_datasets,
    "pyarrow": _open_pyarrow,
    "pandas": _open_pandas,
    "polars": _open_polars,
    "numpy": _open_numpy,
}
