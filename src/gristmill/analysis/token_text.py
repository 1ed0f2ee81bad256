"""Token text: a token as readable text, without ambiguity."""

from __future__ import annotations

__all__ = ["escaped", "printable", "shortened", "show_token"]

_NAMED = {" ": "␣", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\", "␣": r"\u2423"}


def show_token(token: bytes) -> str:
    r"""Return a token as readable text without ambiguity.

    A space is shown as ␣. Characters that cannot be printed and bytes that are not a complete character are escaped, as
    are a backslash and a real ␣, so two different tokens never look the same.

    >>> print(*map(show_token, [b" the", b"\n\n", "é".encode(), b"\xc3", b"\\n"]))
    ␣the \n\n é \xc3 \\n
    """
    return "".join(map(_show_character, token.decode("utf-8", "surrogateescape")))


def shortened(text: str, width: int) -> str:
    """Return `text` cut to `width` characters, with an ellipsis if it was longer.

    >>> shortened("abcdef", 4), shortened("abc", 4)
    ('abc…', 'abc')
    """
    return text if len(text) <= width else text[: width - 1] + "…"


def printable(text: str) -> str:
    r"""Return `text` with control characters replaced, so that it cannot command a terminal.

    >>> printable("a\x1b[31mb") == "a\ufffd[31mb"
    True
    """
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def escaped(character: str) -> str:
    r"""Return the escape of a character, as in a Python string. A byte that `surrogateescape` has kept is that byte.

    >>> print(*map(escaped, ["\x1b", "\x80", "\udc80", "\u202e", "\U000e0001"]))
    \x1b \u0080 \x80 \u202e \U000e0001
    """
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not part of a complete character
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _show_character(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    return character if character.isprintable() and not _combines(character) else escaped(character)


def _combines(character: str) -> bool:
    """Return whether a character is drawn on top of the previous one."""
    import unicodedata

    return ord(character) > 0x300 and unicodedata.category(character).startswith("M")
