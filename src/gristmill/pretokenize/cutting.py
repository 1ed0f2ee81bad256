"""`gristmill.pretokenize(text)`: the pieces of one text, by the core or by the `regex` module."""

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
    """Return the pieces into which `pattern` cuts `text`, as `str` or `bytes` as the text is.

    pattern: a name (`gristmill.pattern_names()`) or a regular expression of the `regex` module.
    special_tokens: each occurrence of one is a piece of its own, and the text between two is cut like a text alone.

    Joined, they are the text. None begins or ends inside a character. Equal pieces may be the same object.

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
            as_utf8(text, "text")  # raises the same, with more to say
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
