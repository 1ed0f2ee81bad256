"""Offsets: where in the text each token stands, in bytes and in characters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Offsets(NamedTuple):
    """Ids and the half-open stretches of the text, one row a token, that they stand for."""

    ids: NDArray[Any]
    byte_spans: NDArray[np.int64]  # (n, 2)
    char_spans: NDArray[np.int64]  # (n, 2)


def find_offsets(text: str | bytes, ids: NDArray[Any], token_lengths: NDArray[np.uint32]) -> Offsets:
    """Where the tokens `ids` of `text` stand: they are the text, one after another.

    A token that begins or ends inside a character has that whole character in its span of characters.

    >>> lengths = np.ones(256, np.uint32)
    >>> find_offsets("é!", np.array([195, 169, 33]), lengths).char_spans.tolist()
    [[0, 1], [0, 1], [1, 2]]
    """
    ends = np.cumsum(token_lengths[ids], dtype=np.int64)
    byte_spans = np.column_stack([np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)], ends])
    if text.isascii():
        return Offsets(ids, byte_spans, byte_spans.copy())
    character_of = np.cumsum(_begins_character(text)) - 1  # of each byte
    char_spans = np.column_stack([character_of[byte_spans[:, 0]], character_of[byte_spans[:, 1] - 1] + 1])
    return Offsets(ids, byte_spans, char_spans)


def _begins_character(text: str | bytes) -> NDArray[np.bool_]:
    """Of each byte of the text, whether it is the first one of a character; an invalid byte is one of its own."""
    data = text.encode() if isinstance(text, str) else text
    try:
        data.decode()
    except UnicodeDecodeError:
        return _begins_character_of_invalid(data)
    begins: NDArray[np.bool_] = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80
    return begins


def _begins_character_of_invalid(data: bytes) -> NDArray[np.bool_]:
    characters = data.decode("utf-8", "surrogateescape")
    codes = np.frombuffer(characters.encode("utf-32-le", "surrogatepass"), "<u4")
    sizes = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    sizes[(codes >= 0xDC80) & (codes <= 0xDCFF)] = 1
    begins = np.zeros(len(data), np.bool_)
    begins[np.cumsum(sizes) - sizes] = True
    return begins
