"""Checks of arguments: ids to decode, and the dtype of ids."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import OptionError, UnknownTokenError


def as_id_array(ids: Any, size: int, name: str = "ids") -> NDArray[np.uint32]:
    """Return `ids`, any iterable or array of integers from 0 to `size` - 1, as the array that the core takes.

    >>> as_id_array(iter([1, 2]), 256)
    array([1, 2], dtype=uint32)
    """
    if not hasattr(ids, "__array__"):
        if isinstance(ids, str | bytes | bytearray) or not isinstance(ids, Iterable):
            raise TypeError(f"{name} is of type {type(ids).__name__}. Pass a list or one-dimensional array of ints.")
        return _of_list(list(ids), size, name)
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuO"):
        raise TypeError(
            f"{name} is an array of {array.dtype} with shape {array.shape}. Pass a list or one-dimensional array of "
            f"ints."
        )
    if array.dtype.kind == "O":
        return _of_list(array.tolist(), size, name)
    wrong = (array < 0) | (array >= size)
    if wrong.any():
        i = int(wrong.argmax())
        raise unknown_id(int(array[i]), size, f"{name}[{i}]")
    return np.ascontiguousarray(array, np.uint32)


def _of_list(ids: list[Any], size: int, name: str) -> NDArray[np.uint32]:
    for i, id in enumerate(ids):
        try:
            if isinstance(id, bool | np.bool_):
                raise TypeError
            number = operator.index(id)
        except TypeError:
            raise TypeError(f"{name}[{i}] is {id!r:.80}, a {type(id).__name__}. Pass ints.") from None
        if not 0 <= number < size:
            raise unknown_id(number, size, f"{name}[{i}]")
    return np.array(ids, np.uint32)


def unknown_id(id: int, size: int, name: str) -> UnknownTokenError:
    """Return the error for an id that no token has. `name` says which argument the id comes from."""
    gaps = ", with gaps" if 0 <= id < size else ""
    return UnknownTokenError(f"{name}: no token has id {id}. The ids of this tokenizer are 0 to {size - 1}{gaps}.")


def check_dtype(dtype: Any, size: int) -> np.dtype[Any]:
    """Return `dtype` if it can represent all ids below `size`. None means uint16 if possible, otherwise uint32.

    >>> check_dtype(None, 65536), check_dtype("int32", 65537)
    (dtype('uint16'), dtype('int32'))
    """
    if dtype is None:
        return np.dtype(np.uint16 if size <= 1 << 16 else np.uint32)
    try:
        kind: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        raise OptionError(f"dtype={dtype!r} is not valid. Pass an integer type, or None.") from None
    if kind.kind not in "iu" or np.iinfo(kind).max < size - 1:
        raise OptionError(
            f"dtype={kind} cannot represent all ids up to {size - 1}. Pass {check_dtype(None, size)}, or None."
        )
    return kind


def check_errors(errors: Any) -> str:
    """Return `errors` if `bytes.decode` accepts it."""
    try:
        b"\xff".decode("utf-8", errors)
    except UnicodeDecodeError:
        pass
    except (LookupError, TypeError, ValueError):
        raise OptionError(
            f"errors={errors!r} is not valid. Pass 'replace', 'strict', 'ignore', 'backslashreplace' or "
            f"'surrogateescape'."
        ) from None
    return str(errors)
