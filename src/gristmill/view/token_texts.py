"""Token texts: the tokens of a text as the pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from gristmill.analysis.token_text import escaped

__all__ = ["shown", "token_texts"]

MAX_TOKEN_BYTES = 400  # of a token that is shown
_JOINERS = "\u200c\u200d"  # Persian, Indic scripts and emoji need them; other invisible characters are escaped


def token_texts(tokens: Sequence[bytes]) -> list[str]:
    r"""Return the text of each token. A character that several tokens make up belongs to the last of them.

    >>> token_texts([b"caf\xc3", b"\xa9", b"\xff\n"])
    ['caf', 'é', '\\xff\n']
    """
    texts: list[str] = []
    together: list[bytes] = []
    for token in tokens:
        if len(token) > MAX_TOKEN_BYTES:
            texts += _texts(together)
            texts.append(shown(token[:MAX_TOKEN_BYTES].decode("utf-8", "ignore")) + "…")
            together = []
        else:
            together.append(token)
    return texts + _texts(together)


def _texts(tokens: Sequence[bytes]) -> list[str]:
    parts: list[list[str]] = [[] for _ in tokens]
    ends = list(accumulate(map(len, tokens)))
    position, token = 0, 0
    for character in b"".join(tokens).decode("utf-8", "surrogateescape"):
        position += 1 if "\udc80" <= character <= "\udcff" else len(character.encode())
        while ends[token] < position:
            token += 1
        parts[token].append(character)
    return [shown("".join(part)) for part in parts]


def shown(text: str) -> str:
    r"""Return `text` with everything escaped that could not be seen or would reorder other text; \n and \t stay.

    >>> print(shown("a\x1b\u202eb\udcff"))
    a\x1b\u202eb\xff
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" or c in _JOINERS else escaped(c) for c in text)
