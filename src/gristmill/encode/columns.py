"""Columns of texts: what pandas, polars, pyarrow, NumPy and Hugging Face hold them in; none of these is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["as_rows", "check_no_table"]


def as_rows(rows: Any, name: str, *, of: str) -> list[Any]:
    """The entries of a list, of a column of a table, or of any other iterable, as a list.

    name: that of the argument; of: what its entries are, for the message.

    >>> as_rows(("a", "b"), "texts", of="str or bytes")
    ['a', 'b']
    """
    if isinstance(rows, list):
        return rows
    if isinstance(rows, str | bytes):
        raise TypeError(f"{name} is one {type(rows).__name__}. Pass a list: [text].")
    check_no_table(rows, name)
    # Arrays of pyarrow iterate over scalars of its own; those of NumPy, over str of its own.
    for method in ("to_pylist", "tolist", "to_list"):
        if callable(convert := getattr(rows, method, None)) and isinstance(listed := convert(), list):
            return listed
    if not isinstance(rows, Iterable):
        raise TypeError(f"{name} is of type {type(rows).__name__}. Pass a list of {of}.")
    return list(rows)


def check_no_table(rows: Any, name: str) -> None:
    """Raise for a table or a mapping: iterating over one gives the names of its columns, or whole rows."""
    columns = _columns(rows)
    if columns is None:
        return
    kind = type(rows).__name__
    if not columns:
        raise TypeError(f"{name} is a {kind} without columns. Pass one column, or a list.")
    shown = ", ".join(map(repr, columns[:5])) + ", …" * (len(columns) > 5)
    what = "keys" if isinstance(rows, Mapping) else "columns"
    chosen = "text" if "text" in columns else columns[0]
    raise TypeError(f"{name} is a {kind} with the {what} {shown}. Pass one of them: {name}[{chosen!r}].")


def _columns(rows: Any) -> list[Any] | None:
    """The names of the columns of a table; None for what is not a table."""
    if isinstance(rows, Mapping):
        return list(rows)
    names = getattr(getattr(rows, "dtype", None), "names", None)  # a structured array of NumPy
    for attribute in ("column_names", "columns"):  # Hugging Face and pyarrow; pandas and polars
        names = getattr(rows, attribute, None) if names is None else names
    return None if names is None or callable(names) else list(names)
