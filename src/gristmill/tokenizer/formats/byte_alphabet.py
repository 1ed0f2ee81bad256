r"""The byte alphabet in which GPT-2, Hugging Face and GGUF write bytes as printable characters.

Bytes 33-126, 161-172 and 174-255 are the characters with the same number. The other 68 are U+0100 to U+0143, in order.

>>> spell(b" a\n"), unspell("Ġa")
('ĠaĊ', b' a')
"""

from __future__ import annotations

from collections.abc import Iterable

from gristmill.errors import FormatWarning, warn_user

_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

CHARACTER_OF = [chr(byte if byte in _PRINTABLE else 0x100 + _OTHERS.index(byte)) for byte in range(256)]
BYTE_OF = {character: byte for byte, character in enumerate(CHARACTER_OF)}
_TO_CHARACTERS = {byte: character for byte, character in enumerate(CHARACTER_OF) if byte not in _PRINTABLE}


def spell(token: bytes) -> str:
    """Return the characters for the bytes of a token."""
    return token.decode("latin-1").translate(_TO_CHARACTERS)


def unspell(text: str) -> bytes | None:
    """Return the bytes for the characters; None if a character is not in the alphabet."""
    try:
        return bytes([BYTE_OF[character] for character in text])
    except KeyError:
        return None


def warn_of_decoding(specials: Iterable[str]) -> None:
    """Warn of special tokens that Hugging Face decodes to other text.

    Its decoder turns a token into bytes if all its characters are in the alphabet, even if the token is special.
    """
    changed = [special for special in specials if unspell(special) not in (None, special.encode())]
    if changed:
        shown = ", ".join(map(repr, changed[:4])) + ", …" * (len(changed) > 4)
        warn_user(
            f"Hugging Face gives the special tokens {shown} the same ids, but decodes them to other text: all their "
            f"characters are also in its byte alphabet. Use ASCII names for them.",
            FormatWarning,
        )
