"""Texts that the tests share: small, generated here, and full of difficult cases."""

from __future__ import annotations

import random

from hypothesis import strategies as st

STORY = (
    'Once upon a time there was a little mill by the river. "I\'ll grind what you bring," said the miller, '
    "\"but I won't grind it twice!\" He'd ground 1,024 sacks of rye and 37 of barley since 1989.\r\n\r\n"
    "Les meules tournaient déjà; Łukasz's naïve cousin — 東京から来た — laughed:   "
    "'HE'S 100% SURE', and so we've 3½ loaves.\n"
    "\tfor (int i = 0; i < 10; ++i) { total += sacks[i]; }  // don't ask   \n\n\n"
)

# One character of each kind that some pattern treats specially.
# fmt: off
CHARACTERS = [
    *"aszAZstTdDmMlLvVrReE",
    *"019",
    *" \t\n\r\v\f",
    *"'’\"!?.,/\\|<>-_^#",
    "\0", "\x1c", "\x7f", "\x85", "\xa0",
    "é", "É", "ß", "ſ", "\u212a", "ǅ", "ʰ", "ª",  # letters of every case; ſ and the Kelvin sign fold to s and k
    "²", "½", "Ⅷ", "٣", "〇",  # numbers that are not digits, and digits that are not ASCII
    "\u0301", "\u0bbe", "\u20dd", "\ufe0f",  # marks of every kind
    "\u1680", "\u2003", "\u2028", "\u202f", "\u3000",  # white space
    "\u180e", "\u200b", "\ufeff",  # only look like white space
    "中", "文", "가", "あ", "ไ", "ع", "क", "א",
    "😀", "👩\u200d💻", "𝒜", "𐍈", "\U000e0041", "\uffff", "\U0010ffff",
]
# fmt: on
CONTRACTIONS = ["'s", "'S", "'ll", "'LL", "'Ve", "'re", "'t", "'ſ", "'d", "'m", "'lL", "'x", "''s", " 's"]
RUNS = ["   ", "\n\n", " \n ", "\r\n\r\n", "aaaa", "AAAb", "123456", "!!!", "  a", " \u3000 ", "/\n/", "\t\t"]
INVALID = [
    b"\xff",
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\x80",
    b"\xf8\x88\x80\x80\x80",
]

characters = st.sampled_from(CHARACTERS + CONTRACTIONS + RUNS)
texts = st.lists(characters, max_size=40).map("".join) | st.text(max_size=40)
byte_texts = (
    st.lists(characters.map(str.encode) | st.sampled_from(INVALID), max_size=40).map(b"".join)
    | st.binary(max_size=40)
    | texts.map(str.encode)
)
# Few letters: many equal counts, and pairs that overlap themselves.
words = st.dictionaries(
    st.text("ab c", min_size=1, max_size=8).map(str.encode), st.integers(1, 6), min_size=1, max_size=8
)


def random_text(seed: int, num_characters: int, *, invalid: bool = True) -> bytes:
    """Text in which every kind of character occurs next to every other."""
    source = random.Random(seed)
    valid = [part.encode() for part in CHARACTERS + CONTRACTIONS + RUNS]
    parts = valid + INVALID if invalid else valid
    return b"".join(source.choices(parts, k=num_characters))


def random_story(seed: int, num_words: int) -> str:
    """Text with the word frequencies of a language, of words that are put together from syllables."""
    source = random.Random(seed)
    syllables = ["the", "mil", "ler", "ri", "ver", "ing", "est", "é", "ß", "o", "n", "an", "tion", "東", "x"]
    lexicon = ["".join(source.choices(syllables, k=source.choice([1, 1, 2, 2, 3]))) for _ in range(300)]
    weights = [1 / (rank + 1) for rank in range(len(lexicon))]
    text = []
    for word in source.choices(lexicon, weights, k=num_words):
        text += [word, source.choice([" "] * 12 + [", ", ".\n", "\n\n", " 12 ", "'s ", "  "])]
    return "".join(text)
