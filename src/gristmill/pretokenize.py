"""pretokenize, for patterns without a native matcher: the `regex` module cuts the text.

The native matchers are in `cpp/src/pretokenize`; both give the pieces that `gristmill.patterns` defines.
"""

from __future__ import annotations

from collections.abc import Iterator

from gristmill.errors import PieceTimeoutError
from gristmill.patterns import compile_regex

# Some expressions need more time than there is on some texts: (a|a)*b on a row of a's doubles it with every letter. A
# sane one cuts a megabyte in a fraction of a second.
TIMEOUT_SECONDS = 60.0
TIMEOUT_SECONDS_PER_MB = 10.0


def cut_into_pieces(document: bytes, regex: str, *, name: str = "the text") -> Iterator[str]:
    r"""The pieces of `document` as characters: the matches of `regex`, and what is left between them.

    Each invalid byte is one character, a lone surrogate; `to_bytes` makes it that byte again.

    >>> list(cut_into_pieces(b"ab-cd\xff", r"[a-z]+"))
    ['ab', '-', 'cd', '\udcff']
    """
    text = document.decode("utf-8", "surrogateescape")
    timeout = TIMEOUT_SECONDS + TIMEOUT_SECONDS_PER_MB * len(document) / 1e6
    end_of_last = 0
    try:
        for match in compile_regex(regex).finditer(text, timeout=timeout):
            start, end = match.span()
            if start == end:
                continue
            if end_of_last < start:
                yield text[end_of_last:start]
            yield text[start:end]
            end_of_last = end
    except TimeoutError:
        raise PieceTimeoutError(
            f"pattern={regex!r} took more than {timeout:.3g} s on {name} ({len(document):,} bytes, of which "
            f"{end_of_last:,} characters were done). Repetitions inside repetitions do that: make them possessive (++)."
        ) from None
    if end_of_last < len(text):
        yield text[end_of_last:]


def to_bytes(piece: str) -> bytes:
    """The bytes of a piece."""
    return piece.encode("utf-8", "surrogateescape")
