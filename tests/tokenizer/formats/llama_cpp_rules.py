r"""How llama.cpp cuts text: the expressions of `src/llama-vocab.cpp` (August 2026) for the names that Gristmill writes.

`gpt-2`, `dbrx`, `llama-bpe` and `qwen2` are hand-written code for these expressions. Text that an expression does not
match is a piece, as in Gristmill. With the names in `IGNORE_MERGES`, a piece that is a token becomes that token.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import regex

from gristmill.tokenizer.parts import TokenizerParts
from texts import CHARACTERS, CONTRACTIONS, RUNS, random_story

_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_LLAMA3 = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT4O = (
    r"[^\r\n\p{L}\p{N}]?((?=[LETTER])([^a-z]))*((?=[LETTER])([^A-Z]))+CONTRACTION?"
    r"|[^\r\n\p{L}\p{N}]?((?=[LETTER])([^a-z]))+((?=[LETTER])([^A-Z]))*CONTRACTION?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
).replace("CONTRACTION", _CONTRACTION)

EXPRESSIONS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    "dbrx": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "qwen2": _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),
    "gpt-4o": _GPT4O.replace("LETTER", r"\p{L}"),
    "granite-embed-multi-97m": _GPT4O.replace("LETTER", r"\p{L}\p{M}"),
}
IGNORE_MERGES = {"llama-bpe", "granite-embed-multi-97m"}


class LlamaCpp:
    """A minimal version of llama.cpp's tokenizer for a vocabulary and the name of a pattern."""

    def __init__(self, parts: TokenizerParts, pre: str) -> None:
        self._expression = regex.compile(EXPRESSIONS[pre])
        self._ignores_merges = pre in IGNORE_MERGES
        self._id_of = {token: id for id, token in parts.vocabulary.tokens.items()}
        tokens = parts.vocabulary.tokens
        self._ranks = {
            (tokens[left], tokens[right]): rank
            for rank, (left, right, _) in enumerate(parts.vocabulary.merges.tolist())
        }
        self._ids_of_piece = cache(self._merged)

    def encode(self, text: str) -> list[int]:
        return [id for piece in self.pieces(text) for id in self._ids_of_piece(piece)]

    def pieces(self, text: str) -> Iterator[str]:
        end = 0
        for match in self._expression.finditer(text):
            yield from filter(None, (text[end : match.start()], match.group()))
            end = match.end()
        if end < len(text):
            yield text[end:]

    def _merged(self, piece: str) -> list[int]:
        data = piece.encode()
        if self._ignores_merges and data in self._id_of:
            return [self._id_of[data]]
        parts = [bytes([byte]) for byte in data]
        while len(parts) > 1:
            rank, at = min((self._ranks.get(pair, len(self._ranks)), i) for i, pair in enumerate(pairwise(parts)))
            if rank == len(self._ranks):
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [self._id_of[part] for part in parts]


SCRIPTS = [
    "สวัสดีครับ ผมชื่อมิลเลอร์ และนี่คือโรงสี ๑๒๓๔",
    "नमस्ते दुनिया, चक्की का मालिक १२३ बोरी आटा पीसता है।",
    "السَّلامُ عَلَيْكُم، طَحَنَ الطَّحّانُ ٤٥٦ كِيسًا مِنَ القَمْحِ.",
    "Мельник смолол 789 мешков ржи; МГУшник сказал: «Ещё!»",
    "粉屋は東京から来た。１２３袋のライ麦を挽いた！", "방앗간 주인은 호밀 37자루를 빻았다.",
    "e\u0301cole de\u0301ja\u0300 vu, Å ngström naïve Œuvre ÉCOLE deÉcole",
    "טוֹחֵן הַקֶּמַח 12", "👩‍💻👍🏽🇫🇷 ok ❤️", "ॐ\u0951 \u0301alone \u20dd",
]  # fmt: skip


def varied_texts(seed: int, number: int) -> Iterator[str]:
    """Texts of scripts with marks, digits, white space, contractions, line breaks and emoji, and mixtures of them."""
    source = random.Random(seed)
    stories = random_story(seed, 4000).split(".")
    for _ in range(number):
        match source.randrange(4):
            case 0:
                yield "".join(source.choices(CHARACTERS + CONTRACTIONS + RUNS, k=source.randrange(1, 60)))
            case 1:
                words = " ".join(source.choices(SCRIPTS, k=2)).split(" ")
                yield source.choice([" ", "  ", "\n", "\r\n", "'S ", "\t"]).join(source.choices(words, k=8))
            case 2:
                script = source.choice(SCRIPTS)
                begin = source.randrange(len(script))
                yield script[begin : begin + source.randrange(1, 30)] + source.choice(["", *RUNS, *CONTRACTIONS])
            case _:
                yield source.choice(stories) + source.choice(["", " ", "\n", "\n  ", "  \r\n\t", " 1234567", "don'T"])
