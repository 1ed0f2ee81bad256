"""pad: encodings of different lengths as one batch, key by key like transformers' `pad`.

| key | what is appended (or put first, with padding_side="left") |
|---|---|
| `input_ids` | the pad token's id |
| `attention_mask` | 0, after the given mask; a missing mask is created |
| `token_type_ids` | 0 |
| `special_tokens_mask` | 1 |
| all others, such as `labels` | nothing: they are passed on unchanged |

The caller must therefore pad labels with one entry per token, as in transformers, whose data collators fill them with
-100.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gristmill.errors import OptionError

__all__ = ["as_python", "pad_columns", "tensor_kind", "to_columns", "to_tensors"]

PADDED = ("input_ids", "attention_mask", "token_type_ids", "special_tokens_mask")


def to_columns(encodings: Any) -> dict[str, Any]:
    """Return encodings as one dict of columns: a list of encodings is transposed, one encoding is copied."""
    if isinstance(encodings, Mapping):
        columns = dict(encodings)
    else:
        rows = list(encodings)
        for index, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise TypeError(f"encoding {index} must be a dict with 'input_ids', got {type(row).__name__}.")
            if missing := [key for key in rows[0] if key not in row]:
                raise OptionError(
                    f"encoding {index} has no {missing[0]!r}, unlike encoding 0. Pass the same keys for all."
                )
        columns = {key: [row[key] for row in rows] for key in rows[0]} if rows else {"input_ids": []}
    if "input_ids" not in columns:
        raise OptionError(f"the encodings have no 'input_ids' (keys: {', '.join(map(repr, columns))}). Add it.")
    return columns


def tensor_kind(ids: Any) -> str | None:
    """Return the kind of the given arrays, "np" or "pt", which is the kind of the result too; None for lists."""
    first = ids
    while isinstance(first, list | tuple):
        first = next((item for item in first if not isinstance(item, list | tuple) or item), None)
    if isinstance(first, np.ndarray | np.generic):
        return "np"
    return "pt" if type(first).__module__.partition(".")[0] == "torch" else None


def as_python(value: Any) -> Any:
    """Return arrays and tensors as numbers and lists, also inside lists; other values unchanged."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [as_python(item) for item in value] if isinstance(value, list | tuple) else value


def pad_columns(
    columns: dict[str, Any], length: int | None, *, pad_id: Callable[[], int], side: str, with_mask: bool
) -> dict[str, Any]:
    """Return the columns of a batch with rows of `length` entries; None leaves the rows as long as they are.

    pad_id: called if a row is too short.
    """
    rows = columns["input_ids"]
    for key, column in columns.items():
        if not hasattr(column, "__len__") or len(column) != len(rows):
            raise OptionError(f"{key!r} must have one entry for each of the {len(rows)} 'input_ids'.")
    if with_mask and "attention_mask" not in columns:
        columns = {**columns, "attention_mask": [[1] * len(row) for row in rows]}
    missing = [0 if length is None else length - len(row) for row in rows]
    if not any(missing):
        return columns
    fills = {"input_ids": pad_id(), "token_type_ids": 0, "special_tokens_mask": 1}
    if with_mask:
        fills["attention_mask"] = 0

    def filled(row: Any, fill: int, number: int) -> list[Any]:
        return [*row, *[fill] * number] if side == "right" else [*[fill] * number, *row]

    return {
        key: [filled(row, fills[key], number) for row, number in zip(column, missing, strict=True)]
        if key in fills
        else column
        for key, column in columns.items()
    }


def to_tensors(columns: dict[str, Any], kind: str | None) -> dict[str, Any]:
    """Return every column as an array ("np") or tensor ("pt"); unchanged for None."""
    return columns if kind is None else {key: _tensor(key, value, kind) for key, value in columns.items()}


def _tensor(key: str, value: Any, kind: str) -> Any:
    plain = as_python(value)
    try:
        array = np.array(plain)
    except ValueError:
        advice = "Pass padding=True" if key in PADDED else f"Pad {key!r} yourself, labels usually with -100"
        raise OptionError(
            f"{key!r} has rows of different lengths, which cannot form an array. {advice}, or pass lists and leave "
            f"return_tensors out. Only {', '.join(PADDED)} are padded."
        ) from None
    if array.dtype.kind not in "biuf":
        raise OptionError(f"{key!r} has values that are not numbers. Remove it, or leave return_tensors out.")
    if kind == "np":
        return array
    import torch  # type: ignore[import-not-found,unused-ignore]

    return torch.tensor(plain)
