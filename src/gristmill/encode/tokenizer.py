"""tokenizer: a vocabulary and a pattern, and what they do with text."""

from __future__ import annotations

import os
from typing import Any

from gristmill.encode.encode_methods import EncodeMethods

__all__ = ["Tokenizer", "check_tokenizer"]


class Tokenizer(EncodeMethods):
    """A byte-level BPE tokenizer: immutable, safe to share between threads, picklable.

    Ids 0-255 are the bytes, then come the merges in the order in which they were learned, then the special tokens in
    the order given; a tokenizer from elsewhere keeps the ids it has there. Every text can be encoded and comes back
    the same: `decode(encode(x)) == x`.

    Wherever text is encoded, by `encode`, `encode_file` or `encode_corpus`, a special token spelled out in it is plain
    text unless `allowed_special` names it, so that user text cannot forge control tokens. Of specials that overlap, the
    leftmost wins, then the longest.

    allowed_special: special tokens that become their ids; "all" for all of them.
    disallowed_special: special tokens that are an error; "all" for all that are not allowed.
    dtype: of the ids; default: uint16 where that holds them all, otherwise uint32.
    num_threads: default: every core this process may use, for texts that are worth it.

    >>> tok = Tokenizer([(b"l", b"o"), (b"lo", b"w")], special_tokens=["<|end|>"])
    >>> tok.encode("low<|end|>", allowed_special="all")
    [257, 258]
    >>> tok.decode([257, 258])
    'low<|end|>'
    """


def check_tokenizer(tokenizer: Any, name: str = "tokenizer", *, otherwise: str = "") -> Tokenizer:
    """`tokenizer`, if it is one. A path is not: loading is left to the caller.

    name: that of the argument.
    otherwise: what else the caller could do, for the message.
    """
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    load = " A path is loaded with Tokenizer.load(path)." if isinstance(tokenizer, str | os.PathLike) else ""
    raise TypeError(f"{name} is a {type(tokenizer).__name__}. Pass a gristmill.Tokenizer{otherwise}.{load}")
