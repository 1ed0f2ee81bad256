"""Special tokens at any ids, for originals that let their users choose them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from gristmill.arguments import check_special_tokens
from gristmill.errors import SpecialTokenError
from gristmill.tokenizer import Tokenizer
from gristmill.vocabulary import MAX_ID


def with_special_tokens(tokenizer: Tokenizer, special_tokens: Mapping[str, int]) -> Tokenizer:
    """The tokenizer that has these special tokens, at these ids, instead of its own.

    >>> with_special_tokens(Tokenizer([(b"l", b"o")], special_tokens=["<s>"]), {"<pad>": 300}).special_tokens
    {'<pad>': 300}
    """
    parts = tokenizer.parts
    holder_of: dict[int, str | bytes] = dict(parts.vocabulary.tokens)
    for special in check_special_tokens(special_tokens):
        id = special_tokens[special]
        if type(id) is not int or not 0 <= id <= MAX_ID:
            raise SpecialTokenError(f"the special token {special!r} has id {id!r}. Pass an int from 0 to {MAX_ID:,}.")
        if id in holder_of:
            raise SpecialTokenError(
                f"the special token {special!r} has id {id}, as {holder_of[id]!r} has. Pass one that is free, such as "
                f"{max(holder_of) + 1}."
            )
        holder_of[id] = special
    by_id = dict(sorted(special_tokens.items(), key=lambda item: item[1]))
    vocabulary = dataclasses.replace(parts.vocabulary, special_tokens=by_id)
    return Tokenizer.of_parts(dataclasses.replace(parts, vocabulary=vocabulary))
