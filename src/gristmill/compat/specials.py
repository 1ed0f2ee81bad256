"""Special tokens at any ids, for libraries that let their users choose them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from gristmill.encode.tokenizer import Tokenizer
from gristmill.tokenizer.vocabulary import check_special_ids


def with_special_tokens(tokenizer: Tokenizer, special_tokens: Mapping[str, int]) -> Tokenizer:
    """Return the tokenizer with these special tokens, at these ids, instead of its own.

    >>> with_special_tokens(Tokenizer([(b"l", b"o")], special_tokens=["<s>"]), {"<pad>": 300}).special_tokens
    {'<pad>': 300}
    """
    parts = tokenizer.parts
    specials = check_special_ids(special_tokens, parts.vocabulary.tokens)
    vocabulary = dataclasses.replace(parts.vocabulary, special_tokens=specials)
    return Tokenizer.from_parts(dataclasses.replace(parts, vocabulary=vocabulary))
