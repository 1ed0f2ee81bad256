"""pretokenize, for patterns without a native matcher: the `regex` module cuts the text.

The native matchers are in `cpp/src/pretokenize`; both give the pieces that `gristmill.pretokenize.patterns` defines.
"""

from __future__ import annotations

import time

from gristmill.errors import PieceTimeoutError
from gristmill.pretokenize.patterns import compile_regex
from gristmill.pretokenize.stages import stages

# Some expressions need more time than there is on some texts: (a|a)*b on a row of a's doubles it with every letter. A
# sane one cuts a megabyte in a fraction of a second.
TIMEOUT_SECONDS = 60.0
TIMEOUT_SECONDS_PER_MB = 10.0
# Of a text, in the error that says which one it is.
PREVIEW_BYTES = 60


def cut_into_pieces(document: bytes, regex: str, *, timeout: float | None = None) -> list[str]:
    r"""The pieces of `document` as characters: the matches of `regex`, and what is left between them, stage by stage.

    Each invalid byte is one character, a lone surrogate; `to_bytes` makes it that byte again. TimeoutError after
    `timeout` seconds; watching the clock makes `regex` three times slower, so None where the caller has a better way.

    >>> cut_into_pieces(b"ab-cd\xff", r"[a-z]+")
    ['ab', '-', 'cd', '\udcff']
    """
    pieces = [document.decode("utf-8", "surrogateescape")] if document else []
    deadline = None if timeout is None else time.monotonic() + timeout
    for expression in stages(regex):
        pieces = [part for piece in pieces for part in _cut(piece, expression, deadline)]
    return pieces


def _cut(text: str, regex: str, deadline: float | None) -> list[str]:
    compiled = compile_regex(regex)
    timeout = None if deadline is None else max(deadline - time.monotonic(), 1e-3)
    if compiled.groups == 0:
        pieces: list[str] = list(filter(None, compiled.findall(text, timeout=timeout)))
        if sum(map(len, pieces)) == len(text):  # nothing between the matches, as with every sane pattern
            return pieces
    pieces = []
    end_of_last = 0
    for match in compiled.finditer(text, timeout=timeout):
        start, end = match.span()
        if start == end:
            continue
        if end_of_last < start:
            pieces.append(text[end_of_last:start])
        pieces.append(text[start:end])
        end_of_last = end
    if end_of_last < len(text):
        pieces.append(text[end_of_last:])
    return pieces


def cut_with_timeout(document: bytes, regex: str, name: str) -> list[str]:
    """The pieces of `document`, within its time limit; `PieceTimeoutError`, with `name`, beyond it."""
    try:
        return cut_into_pieces(document, regex, timeout=time_limit(document))
    except TimeoutError:
        raise too_slow(regex, document, name) from None


def to_bytes(piece: str) -> bytes:
    """The bytes of a piece."""
    return piece.encode("utf-8", "surrogateescape")


def time_limit(document: bytes) -> float:
    """How many seconds the cutting of `document` may take."""
    return TIMEOUT_SECONDS + TIMEOUT_SECONDS_PER_MB * len(document) / 1e6


def too_slow(regex: str, document: bytes, name: str) -> PieceTimeoutError:
    """What to raise when it took longer."""
    return PieceTimeoutError(
        f"pattern={regex!r} took more than {time_limit(document):.3g} s on {name}, {len(document):,} bytes that begin "
        f"with {document[:PREVIEW_BYTES].decode('utf-8', 'backslashreplace')!r}. "
        f"Repetitions inside repetitions do that: make them possessive (++)."
    )
