"""Scripts: how well a tokenizer covers the writing systems of a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import regex
from numpy.typing import NDArray

from gristmill.analysis.vocabulary import is_partial_utf8, token_lengths
from gristmill.encode.tokenizer import Tokenizer

__all__ = ["INVALID", "OTHER", "SCRIPTS", "ScriptUsage", "script_usage", "scripts_of", "vocabulary_scripts"]

# The values of the property Script in Unicode 15. The most common come first, because they are tried in this order.
_NAMES = """
Common Latin Han Cyrillic Hiragana Katakana Hangul Arabic Devanagari Greek Hebrew Thai Inherited Bengali Tamil
Telugu Gujarati Kannada Malayalam Gurmukhi Sinhala Myanmar Khmer Lao Georgian Armenian Ethiopic Mongolian Tibetan
Cherokee Canadian_Aboriginal Thaana Syriac Nko Bopomofo Yi Oriya Braille Tifinagh Javanese Balinese Sundanese Coptic
Gothic Runic Ogham Adlam Ahom Anatolian_Hieroglyphs Avestan Bamum Bassa_Vah Batak Bhaiksuki Brahmi Buginese Buhid
Carian Caucasian_Albanian Chakma Cham Chorasmian Cuneiform Cypriot Cypro_Minoan Deseret Dives_Akuru Dogra Duployan
Egyptian_Hieroglyphs Elbasan Elymaic Glagolitic Grantha Gunjala_Gondi Hanifi_Rohingya Hanunoo Hatran
Imperial_Aramaic Inscriptional_Pahlavi Inscriptional_Parthian Kaithi Kawi Kayah_Li Kharoshthi Khitan_Small_Script
Khojki Khudawadi Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Mandaic Manichaean Marchen
Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mro Multani
Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nushu Nyiakeng_Puachue_Hmong Ol_Chiki Old_Hungarian Old_Italic
Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Osage Osmanya
Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Samaritan Saurashtra Sharada Shavian
Siddham SignWriting Sogdian Sora_Sompeng Soyombo Syloti_Nagri Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tangsa
Tangut Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Warang_Citi Yezidi Zanabazar_Square
"""
SCRIPTS = tuple(_NAMES.split())
COMMON, INHERITED = SCRIPTS.index("Common"), SCRIPTS.index("Inherited")
OTHER = "other characters"  # not assigned in Unicode 15, or for private use
INVALID = "invalid UTF-8"
PARTIAL = "partial UTF-8"
CHUNK_TOKENS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class ScriptUsage:
    """One script in a text.

    Attributes:
        script: Name of the script in Unicode. "Common" has spaces, digits, punctuation and symbols.
        num_characters: Characters of this script.
        num_bytes: Their size in UTF-8.
        num_tokens: Tokens that encode them. A token that spans two scripts counts for each by its share of bytes.
        num_partial: The part of `num_tokens` in tokens that begin or end inside a character.
    """

    script: str
    num_characters: int
    num_bytes: int
    num_tokens: float
    num_partial: float

    @property
    def bytes_per_token(self) -> float:
        """Bytes of this script per token."""
        return self.num_bytes / self.num_tokens

    @property
    def tokens_per_character(self) -> float:
        """Tokens per character of this script. More than 1 means that characters are split."""
        return self.num_tokens / self.num_characters


def script_usage(tokenizer: Tokenizer, ids: NDArray[Any], data: bytes) -> list[ScriptUsage]:
    r"""Return the scripts of a text with the tokens that encode them, the script with the most characters first.

    ids: the ids of `data`.

    >>> tok = Tokenizer([(b"\xc3", b"\xa9"), (b"l", b"o")])
    >>> data = "loé ш".encode()
    >>> [(usage.script, usage.num_characters, usage.num_tokens) for usage in script_usage(tok, tok.encode(data), data)]
    [('Latin', 3, 2.0), ('Common', 1, 1.0), ('Cyrillic', 1, 2.0)]
    """
    lengths, is_partial = token_lengths(tokenizer), _partial_ids(tokenizer)
    names = (*SCRIPTS, OTHER, INVALID)
    totals = np.zeros((4, len(names)))  # characters, bytes, tokens, tokens that are partial
    for chunk, text in _chunks(np.asarray(ids), lengths, data):
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        scripts = _scripts_of_codes(codes)
        totals[0] += np.bincount(scripts, minlength=len(names))
        of_bytes = np.repeat(scripts, _utf8_bytes(codes))
        totals[1] += np.bincount(of_bytes, minlength=len(names))
        shares = np.repeat(1 / lengths[chunk], lengths[chunk])  # the part of a token in each of its bytes
        totals[2] += np.bincount(of_bytes, shares, len(names))
        totals[3] += np.bincount(of_bytes, shares * np.repeat(is_partial[chunk], lengths[chunk]), len(names))
    found = sorted(np.flatnonzero(totals[0]).tolist(), key=lambda script: (-totals[0, script], names[script]))
    return [
        ScriptUsage(
            script=names[script].replace("_", " "),
            num_characters=int(totals[0, script]),
            num_bytes=int(totals[1, script]),
            num_tokens=round(float(totals[2, script]), 6),
            num_partial=round(float(totals[3, script]), 6),
        )
        for script in found
    ]


def vocabulary_scripts(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the number of ordinary tokens in each script, the largest first.

    A token belongs to the script of its first character that is not Common or Inherited. Tokens that begin or end
    inside a character are counted as "partial UTF-8", and tokens without a letter of any script as "Common".

    >>> list(vocabulary_scripts(Tokenizer([(b" ", b"l"), (b" l", b"o")])).items())
    [('partial UTF-8', 128), ('Common', 76), ('Latin', 54)]
    """
    special_ids = set(tokenizer.special_tokens.values())
    counts: dict[str, int] = {}
    texts = []
    for id, token in tokenizer.vocab.items():
        if id in special_ids:
            continue
        if is_partial_utf8(token):
            counts[PARTIAL] = counts.get(PARTIAL, 0) + 1
        else:
            texts.append(token.decode())
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")
    scripts = _scripts_of_codes(codes)
    begins = np.concatenate([[0], np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))])
    is_letter = (scripts != COMMON) & (scripts != INHERITED)
    # Position of the first character of a script, at or after each position.
    positions = np.where(is_letter, np.arange(len(codes)), len(codes))
    following = np.minimum.accumulate(positions[::-1])[::-1]
    first = following[begins[:-1]]
    owner = np.where(first < begins[1:], np.append(scripts, COMMON)[np.minimum(first, len(codes))], COMMON)
    names = (*SCRIPTS, OTHER, INVALID)
    for script, number in enumerate(np.bincount(owner, minlength=len(names)).tolist()):
        if number:
            counts[names[script].replace("_", " ")] = number
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def scripts_of(text: str) -> list[str]:
    """Return the script of every character of `text`.

    >>> scripts_of("a я1")
    ['Latin', 'Common', 'Cyrillic', 'Common']
    """
    names = (*SCRIPTS, OTHER, INVALID)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return [names[script].replace("_", " ") for script in _scripts_of_codes(codes).tolist()]


def _chunks(ids: NDArray[Any], lengths: NDArray[np.int64], data: bytes) -> Iterator[tuple[NDArray[Any], str]]:
    """Yield stretches of the ids with their text, cut where a token ends at the end of a character."""
    ends = np.cumsum(lengths[ids])
    first = begin = 0
    while first < len(ids):
        last = min(first + CHUNK_TOKENS, len(ids))
        # A byte of the form 10xxxxxx continues a character. A text of nothing else is invalid UTF-8 and may be cut.
        while last < len(ids) and data[ends[last - 1]] & 0xC0 == 0x80 and last < first + CHUNK_TOKENS + 64:
            last += 1
        end = int(ends[last - 1])
        yield ids[first:last], data[begin:end].decode("utf-8", "surrogateescape")
        first, begin = last, end


def _partial_ids(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    partial = np.zeros(tokenizer.vocab_size, np.bool_)
    for id, token in tokenizer.vocab.items():
        partial[id] = is_partial_utf8(token)
    return partial


def _utf8_bytes(codes: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the size of each character in UTF-8. A byte that is not part of a valid character is 1 byte."""
    sizes = 1 + (codes > 0x7F).astype(np.int64) + (codes > 0x7FF) + (codes > 0xFFFF)
    sizes[_is_escaped(codes)] = 1
    return sizes


def _is_escaped(codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    return (codes >= 0xDC80) & (codes <= 0xDCFF)


def _scripts_of_codes(codes: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the index of the script of each character in `(*SCRIPTS, OTHER, INVALID)`."""
    present, places = _distinct(codes)
    scripts = np.array([_script_of(code) for code in present.tolist()], np.int64)
    return scripts[places]


def _distinct(codes: NDArray[np.uint32]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct code points and the index of each character in them, without sorting the text."""
    is_present = np.zeros(0x110000, np.bool_)
    is_present[codes] = True
    present = np.flatnonzero(is_present)
    index = np.zeros(0x110000, np.int64)
    index[present] = np.arange(len(present))
    return present, index[codes]


@cache
def _script_of(code: int) -> int:
    if 0xD800 <= code <= 0xDFFF:
        return len(SCRIPTS) + 1
    match = _any_script().match(chr(code))
    return len(SCRIPTS) if match is None else int(match.lastindex) - 1


@cache
def _any_script() -> Any:
    """Return a pattern with one group per script, in the order of `SCRIPTS`."""
    return regex.compile("|".join(rf"(\p{{Script={script}}})" for script in SCRIPTS))
