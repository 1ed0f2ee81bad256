"""Cut text with the `regex` module, for patterns without a native matcher.

The native matchers are in `cpp/src/pretokenize`. Both return the pieces that `gristmill.pretokenize.patterns` defines.
"""

from __future__ import annotations

import time

from gristmill.errors import PieceTimeoutError
from gristmill.pretokenize.patterns import compile_regex
from gristmill.pretokenize.stages import stages

# Some expressions take exponential time: with (a|a)*b, each further letter in a run of a's doubles it. An ordinary
# expression cuts a megabyte in a fraction of a second.
TIMEOUT_SECONDS = 60.0
TIMEOUT_SECONDS_PER_MB = 10.0
# Length of the excerpt of a document in error messages.
PREVIEW_BYTES = 60


def cut_into_pieces(document: bytes, regex: str, *, timeout: float | None = None) -> list[str]:
    r"""Return the pieces of `document` as `str`: the matches of `regex` and the text between them, stage by stage.

    Each invalid byte becomes a lone surrogate, which `to_bytes` turns back into that byte. Raises TimeoutError after
    `timeout` seconds. A timeout makes `regex` three times slower, so pass None if the caller limits the time itself.

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
        if sum(map(len, pieces)) == len(text):  # no text between the matches, as with ordinary patterns
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
    """Return the pieces of `document`. Raises PieceTimeoutError, which names `name`, after its time limit."""
    try:
        return cut_into_pieces(document, regex, timeout=time_limit(document))
    except TimeoutError:
        raise too_slow(regex, document, name) from None


def to_bytes(piece: str) -> bytes:
    """Return the bytes of a piece."""
    return piece.encode("utf-8", "surrogateescape")


def time_limit(document: bytes) -> float:
    """Return the time limit in seconds for cutting `document`."""
    return TIMEOUT_SECONDS + TIMEOUT_SECONDS_PER_MB * len(document) / 1e6


def too_slow(regex: str, document: bytes, name: str) -> PieceTimeoutError:
    """Return the error for a document that took longer than its time limit."""
    return PieceTimeoutError(
        f"pattern={regex!r} took more than {time_limit(document):.3g} s on {name}, {len(document):,} bytes that begin "
        f"with {document[:PREVIEW_BYTES].decode('utf-8', 'backslashreplace')!r}. "
        f"Nested repetitions are the usual cause: make them possessive (++)."
    )
