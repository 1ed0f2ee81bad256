r"""The byte alphabet: how GPT-2, and after it Hugging Face and GGUF, write bytes as printable characters.

Bytes 33-126, 161-172 and 174-255 stand for themselves; the other 68 are U+0100 to U+0143, in order.

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
    """The characters that stand for the bytes of a token."""
    return token.decode("latin-1").translate(_TO_CHARACTERS)


def unspell(text: str) -> bytes | None:
    """The bytes that the characters stand for; None when one of them stands for none."""
    try:
        return bytes([BYTE_OF[character] for character in text])
    except KeyError:
        return None


def warn_of_decoding(specials: Iterable[str]) -> None:
    """Warn of special tokens that Hugging Face decodes to other text.

    Its decoder takes a token for spelled bytes if every character is one of the alphabet, special or not.
    """
    changed = [special for special in specials if unspell(special) not in (None, special.encode())]
    if changed:
        shown = ", ".join(map(repr, changed[:4])) + ", …" * (len(changed) > 4)
        warn_user(
            f"Hugging Face has the same ids for the special tokens {shown}, but decodes them to other text: all their "
            f"characters also stand for bytes in its alphabet. Give them names in ASCII.",
            FormatWarning,
        )
