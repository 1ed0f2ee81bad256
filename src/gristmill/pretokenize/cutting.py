"""`gristmill.pretokenize(text)`: the pieces of one text, cut by the core or by the `regex` module."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import overload

from gristmill import _core
from gristmill.arguments import as_utf8, check_kernel, check_special_tokens
from gristmill.pretokenize.patterns import DEFAULT_PATTERN, resolve_pattern, warn_of_slow_pattern
from gristmill.pretokenize.pieces import cut_with_timeout, to_bytes

__all__ = ["pretokenize"]


@overload
def pretokenize(text: str, *, pattern: str = ..., special_tokens: Iterable[str] = ...) -> list[str]: ...
@overload
def pretokenize(text: bytes, *, pattern: str = ..., special_tokens: Iterable[str] = ...) -> list[bytes]: ...
def pretokenize(
    text: str | bytes, *, pattern: str = DEFAULT_PATTERN, special_tokens: Iterable[str] = ()
) -> list[str] | list[bytes]:
    """Return the pieces into which `pattern` cuts `text`, of the same type as `text`.

    Joined, the pieces are the text. No piece begins or ends inside a character. Equal pieces may be the same object.

    Args:
        text: The text to cut, `str` or `bytes`.
        pattern: A name from `gristmill.pattern_names()`, or a regular expression of the `regex` module.
        special_tokens: Each occurrence of a special token is one piece. The text between two special tokens is cut like
            a separate text.

    Raises:
        PatternError: The pattern name is unknown, or the regular expression does not compile.
        SpecialTokenError: A special token is empty or repeated.
        TextError: `text` is a `str` with lone surrogates.
        PieceTimeoutError: The regular expression takes too long.
        TypeError: `text` is neither `str` nor `bytes`.

    Examples:
        >>> pretokenize("It's 12,345 apples")
        ['It', "'s", ' 12', ',', '345', ' apples']
        >>> pretokenize(b"one<|end|>two", special_tokens=["<|end|>"])
        [b'one', b'<|end|>', b'two']
    """
    known = resolve_pattern(pattern)
    specials = [special.encode() for special in check_special_tokens(special_tokens)]
    if known.name is not None:
        check_kernel()
        try:
            return _core.cut_pieces(text, known.name, specials)
        except (TypeError, UnicodeEncodeError):
            as_utf8(text, "text")  # raises the same error with a better message
            raise
    data = as_utf8(text, "text")
    warn_of_slow_pattern(known)
    pieces = list(_cut_by_regex(data, known.regex, specials))
    return pieces if isinstance(text, str) else list(map(to_bytes, pieces))


def _cut_by_regex(data: bytes, regex: str, specials: list[bytes]) -> Iterator[str]:
    longest_first = sorted(specials, key=len, reverse=True)
    any_special = re.compile(b"|".join(map(re.escape, longest_first)) or b"(?!)")  # (?!) matches nowhere
    begin = 0
    for match in any_special.finditer(data):
        yield from cut_with_timeout(data[begin : match.start()], regex, "the text")
        yield match.group().decode()
        begin = match.end()
    yield from cut_with_timeout(data[begin:], regex, "the text")
