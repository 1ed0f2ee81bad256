"""Columns of texts from pandas, polars, pyarrow, NumPy and Hugging Face, without importing these libraries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["as_rows", "check_no_table"]


def as_rows(rows: Any, name: str, *, of: str) -> list[Any]:
    """Return the entries of a list, a table column or any other iterable, as a list.

    name: the name of the argument; of: what its entries must be, for messages.

    >>> as_rows(("a", "b"), "texts", of="str or bytes")
    ['a', 'b']
    """
    if isinstance(rows, list):
        return rows
    if isinstance(rows, str | bytes):
        raise TypeError(f"{name} is a single {type(rows).__name__}. Pass a list: [text].")
    check_no_table(rows, name)
    # Iterating over a pyarrow array gives pyarrow scalars, and over a NumPy array np.str_ objects.
    for method in ("to_pylist", "tolist", "to_list"):
        if callable(convert := getattr(rows, method, None)) and isinstance(listed := convert(), list):
            return listed
    if not isinstance(rows, Iterable):
        raise TypeError(f"{name} is of type {type(rows).__name__}. Pass a list of {of}.")
    return list(rows)


def check_no_table(rows: Any, name: str) -> None:
    """Raise for a table or a mapping, because iterating over it gives column names or whole rows."""
    columns = _columns(rows)
    if columns is None:
        return
    kind = type(rows).__name__
    if not columns:
        raise TypeError(f"{name} is a {kind} without columns. Pass a column, or a list.")
    shown = ", ".join(map(repr, columns[:5])) + ", …" * (len(columns) > 5)
    what = "keys" if isinstance(rows, Mapping) else "columns"
    chosen = "text" if "text" in columns else columns[0]
    raise TypeError(f"{name} is a {kind} with the {what} {shown}. Pass one of them: {name}[{chosen!r}].")


def _columns(rows: Any) -> list[Any] | None:
    """Return the column names of a table; None for anything else."""
    if isinstance(rows, Mapping):
        return list(rows)
    names = getattr(getattr(rows, "dtype", None), "names", None)  # a structured NumPy array
    for attribute in ("column_names", "columns"):  # Hugging Face and pyarrow; pandas and polars
        names = getattr(rows, attribute, None) if names is None else names
    return None if names is None or callable(names) else list(names)
