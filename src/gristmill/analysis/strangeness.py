"""Strangeness: how unlike the rest of the vocabulary each token is. No text is needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.encode.tokenizer import Tokenizer

__all__ = ["strangest_tokens"]

_START = 256  # the value before the first byte of every token


def strangest_tokens(tokenizer: Tokenizer) -> NDArray[np.int64]:
    r"""Return the ids of all ordinary tokens of two or more bytes, the strangest first.

    The strangeness of a token is the number of bits that its byte pairs carry: the sum of -log2 p(byte | previous byte)
    over its distinct byte pairs, with p estimated from the vocabulary itself, in which each token occurs once. A long
    token of unusual pairs is therefore strange, and a run of one character is not, however long it is. The strangest
    tokens are often names and identifiers that a corpus repeats many times. Ties are in order of id.

    >>> tok = Tokenizer([(b"l", b"o"), (b"lo", b"w"), (b"lo", b"lo"), (b"#", b"Q"), (b"lolo", b"lolo")])
    >>> [tok.token_bytes(int(id)) for id in strangest_tokens(tok)]
    [b'low', b'#Q', b'lolo', b'lolololo', b'lo']
    """
    specials = set(tokenizer.special_tokens.values())
    tokens = {id: token for id, token in tokenizer.vocab.items() if len(token) > 1 and id not in specials}
    if not tokens:
        return np.empty(0, np.int64)
    ids = np.fromiter(tokens, np.int64, len(tokens))
    lengths = np.fromiter(map(len, tokens.values()), np.int64, len(tokens))
    data = np.frombuffer(b"".join(tokens.values()), np.uint8).astype(np.int64)
    previous = np.concatenate([[_START], data[:-1]])
    previous[np.cumsum(lengths) - lengths] = _START
    pairs = previous * 256 + data
    counts = np.bincount(pairs, minlength=(_START + 1) * 256).reshape(-1, 256)
    bits = -np.log2(np.maximum(counts, 1) / np.maximum(counts.sum(axis=1, keepdims=True), 1)).ravel()
    owners = np.repeat(np.arange(len(ids)), lengths)
    distinct = np.unique(owners * len(bits) + pairs)
    strangeness = np.bincount(distinct // len(bits), weights=bits[distinct % len(bits)])
    return ids[np.lexsort([ids, -np.round(strangeness, 9)])]
