"""Vocabulary: the lengths and the classes of the tokens of a tokenizer. No text is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gristmill.encode.tokenizer import Tokenizer

__all__ = ["TokenClasses", "is_partial_utf8", "is_whitespace", "length_histogram", "token_classes", "token_lengths"]

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TokenClasses:
    """Ids of the tokens of each class. A special token is only in `specials`; other classes may overlap.

    Attributes:
        ordinary: Tokens that are not special, in order of id.
        longest: The same tokens, by decreasing number of bytes; among equal lengths, by id.
        whitespace: Tokens that consist of white space, such as a run of spaces, in order of id.
        partial_utf8: Tokens that begin or end inside a character, or are not valid UTF-8, in order of id. The single
            bytes from 0x80 to 0xff are among them.
        specials: Special tokens with their ids.
    """

    ordinary: Ids
    longest: Ids
    whitespace: Ids
    partial_utf8: Ids
    specials: Mapping[str, int]


def token_classes(tokenizer: Tokenizer) -> TokenClasses:
    """Return the classes of the tokens of `tokenizer`.

    >>> tok = Tokenizer([(b"l", b"o"), (b"lo", b"w"), (b" ", b" ")], special_tokens=["<s>"])
    >>> classes = token_classes(tok)
    >>> classes.longest[:3].tolist(), len(classes.partial_utf8), dict(classes.specials)
    ([257, 256, 258], 128, {'<s>': 259})
    """
    specials = tokenizer.special_tokens
    special_ids = set(specials.values())
    tokens = {id: token for id, token in tokenizer.vocab.items() if id not in special_ids}
    ids = np.fromiter(tokens, np.int64, len(tokens))
    lengths = np.fromiter(map(len, tokens.values()), np.int64, len(tokens))
    return TokenClasses(
        ordinary=ids,
        longest=ids[np.lexsort([ids, -lengths])],
        whitespace=np.array([id for id, token in tokens.items() if is_whitespace(token)], np.int64),
        partial_utf8=np.array([id for id, token in tokens.items() if is_partial_utf8(token)], np.int64),
        specials=specials,
    )


def is_whitespace(token: bytes) -> bool:
    r"""Return whether a token consists of white space only.

    >>> is_whitespace(b" \n"), is_whitespace("\u3000".encode()), is_whitespace(b" a"), is_whitespace(b"\xc2")
    (True, True, False, False)
    """
    return token.isspace() or (not token.isascii() and token.decode("utf-8", "replace").isspace())


def is_partial_utf8(token: bytes) -> bool:
    r"""Return whether a token begins or ends inside a character, or is not valid UTF-8.

    >>> is_partial_utf8("é".encode()), is_partial_utf8(b"\xc3"), is_partial_utf8(b"a\xc3")
    (False, True, True)
    """
    if token.isascii():
        return False
    try:
        token.decode()
    except UnicodeDecodeError:
        return True
    return False


def token_lengths(tokenizer: Tokenizer) -> Ids:
    """Return the number of bytes of every id, special tokens included. It is 0 for an id without a token.

    >>> token_lengths(Tokenizer([(b"l", b"o")], special_tokens=["<s>"]))[255:].tolist()
    [1, 2, 3]
    """
    lengths = np.zeros(tokenizer.vocab_size, np.int64)
    for id, token in tokenizer.vocab.items():
        lengths[id] = len(token)
    return lengths


def length_histogram(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the number of ordinary tokens of each length: entry n counts the tokens of n bytes.

    >>> length_histogram(Tokenizer([(b"l", b"o"), (b"lo", b"w")])).tolist()
    [0, 256, 1, 1]
    """
    return np.bincount(token_lengths(tokenizer)[token_classes(tokenizer).ordinary])
