"""Tokenizer words: example texts and explanations of the room of tokenizers."""

from __future__ import annotations

from collections.abc import Iterable

from gristmill.view.token_index import Class

__all__ = ["CLASSES", "PATTERNS", "examples"]

# Name and explanation of each class of tokens, in the order of the page.
CLASSES: dict[Class, tuple[str, str]] = {
    "all": ("All tokens", "In order of id."),
    "longest": ("Longest", "By length in bytes."),
    "strangest": (
        "Strangest",
        "The tokens that are most unlike the rest: their byte pairs are long and rare in this "
        "vocabulary. Often names and identifiers that the corpus repeats.",
    ),
    "whitespace": ("White space", "Tokens of white space only."),
    "partial": (
        "Partial UTF-8",
        "Tokens that begin or end inside a character. The single bytes from 80 to ff are among them.",
    ),
    "special": ("Special", "Control tokens with reserved ids."),
    "not_itself": (
        "Not their own encoding",
        "Text with exactly the bytes of such a token becomes other tokens. It is used only inside "
        "longer text, or never.",
    ),
    "used": ("Used", "By how often the text uses them."),
    "unused": ("Never used", "Ordinary tokens that the text does not use, in order of id."),
}
PATTERNS = {
    "gpt2": "Letters, digits and other characters in separate runs, each with the space before it.",
    "cl100k": ("Words with the space before them, digits in groups of up to three, contractions in any case."),
    "o200k": ("Words, also cut where lower case is followed by upper case; digits in groups of up to three."),
    "llama3": "Words with the space before them, digits in groups of up to three.",
    "nanochat": "Words with the space before them, digits in groups of up to two.",
    "qwen2": "Words with the space before them, single digits.",
    "whitespace": "Text between white space, with the space before it.",
}
_EXAMPLES = {
    "A few lines": (
        "The miller's daughter counted 1,024 sacks; 37 were missing.\n\tNaïve café — 東京の夜, Привет, "
        "مرحبا, 👩\u200d🌾🌾\n"
    ),
    "English": (
        "Once upon a time, a small mill stood by the river. Every morning the miller opened the "
        "gate, and the great wheel began to turn.\n"
    ),
    "Code": (
        'def encode(text: str) -> list[int]:\n    """Return the ids of `text`."""\n    ids = '
        "[]\n    for piece in PATTERN.findall(text):\n        ids += "
        'merge(piece.encode("utf-8"))\n    return ids  # 2**16 at most\n'
    ),
    "Languages": (
        "English: the river runs to the sea.\nDeutsch: Der Fluss fließt zum Meer.\nРусский: река "
        "течёт к морю.\n日本語: 川は海へ流れる。\nالعربية: يجري النهر إلى البحر.\nहिन्दी: नदी समुद्र की ओर "
        "बहती है।\nΕλληνικά: το ποτάμι κυλά προς τη θάλασσα.\n"
    ),
    "Numbers": "3.14159265 1,000,000 2026-11-18 0xDEADBEEF 1e-9 99 bottles\n",
    "Hard characters": (
        "zero width: a\u200bb, no-break: a\u00a0b, combining: e\u0301, flags: 🇫🇷🇯🇵, family: "
        "👨\u200d👩\u200d👧, right to left: \u05e9\u05dc\u05d5\u05dd, tabs:\t\t, spaces:     .\n"
    ),
}


def examples(specials: Iterable[str]) -> dict[str, str]:
    """Return texts to try. With special tokens, one of them is at the end of the first text, and has its own text.

    >>> list(examples(["<|end|>"]))[-1]
    'Special tokens'
    """
    special = next(iter(specials), None)
    if special is None:
        return _EXAMPLES
    first, *_ = _EXAMPLES
    documents = f"One document ends here.{special}The next one starts here.{special}"
    return {**_EXAMPLES, first: _EXAMPLES[first] + special, "Special tokens": documents}
