"""Merges as arrays of ids: checks, conversion to bytes and back.

Row i of a merge array has the ids (left, right) that are merged into id 256 + i. Ids below 256 are the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.arguments import MAX_VOCAB_SIZE, NUM_BYTE_TOKENS
from gristmill.errors import TokenizerFormatError

MergeIds = NDArray[np.uint32]

# Limit for all tokens together, where a token counts once per merge that creates it. A file of forty merges can define
# a token of a terabyte: (0,0), (256,256), (257,257), …
MAX_VOCAB_BYTES = _core.MAX_VOCABULARY_BYTES


def check_merges(merges: Any) -> MergeIds:
    """Return `merges` as a read-only array of shape (n, 2), or raise TokenizerFormatError.

    Every part must exist before it is merged, no pair may occur twice, and the tokens may have at most
    `MAX_VOCAB_BYTES` together. There is no Python loop: 32,000 merges take a millisecond.
    """
    array = np.asarray(merges)
    if array.size == 0:
        array = np.empty((0, 2), np.uint32)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise TokenizerFormatError(
            f"merges must be an (n, 2) array of ids, got an array of {array.dtype} with shape {array.shape}."
        )
    if len(array) > MAX_VOCAB_SIZE:
        raise TokenizerFormatError(f"there are {len(array):,} merges; at most {MAX_VOCAB_SIZE:,} are allowed.")
    in_range = (array >= 0) & (array < MAX_VOCAB_SIZE)
    ids = np.where(in_range, array, MAX_VOCAB_SIZE).astype(np.uint32)  # a copy: the caller may change the original
    ids.flags.writeable = False
    i = _core.find_wrong_merge(ids)
    if i < len(ids):
        left, right = array[i].tolist()
        if min(left, right) >= 0 and max(left, right) < NUM_BYTE_TOKENS + i:
            raise TokenizerFormatError(f"merge {i} joins ids {left} and {right}, as an earlier merge does.")
        raise TokenizerFormatError(
            f"merge {i} joins ids {left} and {right}, but creates id {256 + i}: both must be from 0 to {255 + i}."
        )
    check_vocab_bytes(ids)
    return ids


def check_vocab_bytes(merges: MergeIds) -> None:
    """Raise if the tokens together exceed `MAX_VOCAB_BYTES`, before any of them is built."""
    i = _core.find_merge_past_limit(merges)
    if i < len(merges):
        raise TokenizerFormatError(too_many_bytes(i))


def too_many_bytes(i: int) -> str:
    """Return the message for a vocabulary whose tokens exceed `MAX_VOCAB_BYTES` at merge `i`."""
    return (
        f"the tokens up to merge {i} have more than {MAX_VOCAB_BYTES:,} bytes together, which is the limit. Real "
        f"vocabularies have a few million bytes: check where this one comes from."
    )


def check_tokens(merges: MergeIds) -> None:
    """Raise if two merges create the same bytes.

    Training never gives such merges (see `gristmill.reference`), so this is for merges from other sources.
    """
    id_of: dict[bytes, int] = {}
    for id, token in enumerate(build_tokens(merges)):
        if id_of.setdefault(token, id) != id:
            raise TokenizerFormatError(f"ids {id_of[token]} and {id} have the same bytes: {token[:80]!r}.")


def build_tokens(merges: MergeIds) -> list[bytes]:
    """Return the bytes of every id: the 256 single bytes, then the tokens that the merges create.

    >>> build_tokens(np.array([[97, 98], [256, 99]]))[256:]
    [b'ab', b'abc']
    """
    ids = np.ascontiguousarray(merges, np.uint32)
    check_vocab_bytes(ids)
    return _core.build_tokens(ids)


def find_ids(pairs: Iterable[Sequence[bytes]]) -> MergeIds:
    """Return the ids of merges given as pairs of bytes.

    >>> find_ids([(b"a", b"b"), (b"ab", b"c")]).tolist()
    [[97, 98], [256, 99]]
    """
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise TypeError(f"merges is of type {type(pairs).__name__}. Pass pairs of bytes, or an (n, 2) array of ids.")
    id_of = {bytes([byte]): byte for byte in range(NUM_BYTE_TOKENS)}
    rows: list[tuple[int, int]] = []
    for i, pair in enumerate(pairs):
        if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != 2:
            raise TokenizerFormatError(f"merge {i} is {pair!r:.80}. Pass pairs of bytes, or an (n, 2) array of ids.")
        left, right = pair
        for part in (left, right):
            if not isinstance(part, bytes):
                raise TokenizerFormatError(
                    f"merge {i} joins {part!r:.80}, which is of type {type(part).__name__}. Pass pairs of bytes, or an "
                    f"(n, 2) array of ids."
                )
            if part not in id_of:
                raise TokenizerFormatError(
                    f"merge {i} joins {part!r}, which is neither a single byte nor the result of an earlier merge."
                )
        if left + right in id_of:
            raise TokenizerFormatError(
                f"merge {i} creates {left + right!r}, which already has id {id_of[left + right]}."
            )
        id_of[left + right] = NUM_BYTE_TOKENS + i
        rows.append((id_of[left], id_of[right]))
    return np.array(rows, np.uint32).reshape(-1, 2)
