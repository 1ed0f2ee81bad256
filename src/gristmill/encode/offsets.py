"""`Offsets`: the position of each token in the text, in bytes and in characters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Offsets(NamedTuple):
    """Ids and the positions of their tokens in the text, as half-open spans.

    Returned by `Tokenizer.encode_with_offsets`.

    Attributes:
        ids: The ids of the text.
        byte_spans: Start and end of each token in bytes; shape (n, 2).
        char_spans: Start and end of each token in characters; shape (n, 2). A token that begins or ends inside a
            character includes the whole character.

    Examples:
        >>> from gristmill import Tokenizer
        >>> found = Tokenizer([(b"a", b"a")]).encode_with_offsets("aaé")
        >>> found.ids.tolist(), found.byte_spans.tolist()
        ([256, 195, 169], [[0, 2], [2, 3], [3, 4]])
        >>> found.char_spans.tolist()
        [[0, 2], [2, 3], [2, 3]]
    """

    ids: NDArray[Any]
    byte_spans: NDArray[np.int64]
    char_spans: NDArray[np.int64]


def find_offsets(text: str | bytes, ids: NDArray[Any], token_lengths: NDArray[np.uint32]) -> Offsets:
    """Return the positions of the tokens `ids` in `text`. Joined, the tokens are the text.

    A token that begins or ends inside a character has the whole character in its character span.

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
    """Return, for each byte of the text, whether it begins a character. An invalid byte is a character of its own."""
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
