"""How encoding finds the ids of a piece, and why a cache answers nearly always: figures of the sample corpus."""

from __future__ import annotations

from functools import cache
from itertools import accumulate, pairwise

import numpy as np

import gristmill as gm
from pictures.sample import sample_text, sample_words
from pictures.svg import Picture, show_token

VOCAB_SIZE = 2000


@cache
def trained() -> gm.Tokenizer:
    """Return a tokenizer of the sample corpus."""
    return gm.train_tokenizer([sample_text()], vocab_size=VOCAB_SIZE, special_tokens=(), progress=None)


def draw_lookup() -> Picture:
    """Draw the three places where a piece is looked up, with the share of pieces that each answers."""
    tok = trained()
    words = sample_words()
    num_pieces, num_words = sum(words.values()), len(words)
    tokens = set(tok.vocab.values())
    single = [word for word in words if word in tokens]
    longest = max((word for word in words if word not in tokens), key=lambda word: (words[word], word))
    picture = Picture(
        "How a piece becomes ids",
        "A piece is looked up in the thread's cache, then in the table of whole tokens, and only then encoded by BPE. "
        "The numbers are the shares of the pieces of the sample corpus.",
    )
    rows = [
        ("1", "piece cache of the thread", "seen before in this text", num_pieces - num_words, "third"),
        ("2", "table of whole tokens", f"new, and one token, such as “{show_token(single[0])}”", len(single), "second"),
        ("3", "BPE", f"new, several tokens, such as “{show_token(longest)}”", num_words - len(single), "accent"),
    ]
    picture.text(12, 24, f"{num_pieces:,} pieces of the sample corpus", bold=True)
    y = 38.0
    for number, name, when, answered, kind in rows:
        picture.rect(12, y, 416, 58, fill=f"{kind}-fill")
        picture.text(24, y + 24, f"{number}  {name}", bold=True, colour=kind)
        picture.text(416, y + 24, f"{100 * answered / num_pieces:.1f} %", bold=True, anchor="end", colour=kind)
        picture.text(42, y + 44, when, size=12)
        y += 58
        if number != "3":
            picture.arrow(40, y, 40, y + 20)
            picture.text(52, y + 15, "not found", size=11, colour="muted")
            y += 22
    ids = tok.encode(longest.decode())
    picture.prose(
        12,
        y + 22,
        f"BPE merges “{show_token(longest)}” into {len(ids)} tokens once; the cache then holds the ids. A cache has "
        "room for a fixed number of bytes and starts again when it is full, so its size never changes an id.",
    )
    return picture


def draw_coverage() -> Picture:
    """Draw how much of the text the most frequent words make up."""
    counts = np.array(sorted(sample_words().values(), reverse=True))
    total = int(counts.sum())
    covered = list(accumulate(counts.tolist()))
    picture = Picture(
        "Share of the text by number of distinct words",
        "A curve: the most frequent 10, 100 and 1,000 distinct words make up most of the pieces of a text.",
    )
    picture.text(12, 24, "A few distinct words make up most of a text", bold=True)
    left, top, width, height = 46, 44, 380, 150
    scale = np.log10(len(counts))
    for percent in (0, 25, 50, 75, 100):
        y = top + height - percent / 100 * height
        picture.line(left, y, left + width, y, colour="cell")
        picture.text(left - 6, y + 4, f"{percent} %", size=11, colour="muted", anchor="end")
    points = []
    for rank in sorted({int(10 ** (scale * step / 60)) for step in range(61)}):
        points.append((left + np.log10(rank) / scale * width, top + height - covered[rank - 1] / total * height))
    for (x1, y1), (x2, y2) in pairwise(points):
        picture.line(float(x1), float(y1), float(x2), float(y2), colour="accent")
    for rank in (10, 100, 1000):
        if rank > len(counts):
            break
        x = left + np.log10(rank) / scale * width
        y = top + height - covered[rank - 1] / total * height
        picture.rect(float(x) - 4, float(y) - 4, 8, 8, fill="accent", line="none", r=4)
        picture.text(
            float(x) - 8, float(y) - 10, f"{rank:,}: {100 * covered[rank - 1] / total:.0f} %", size=12, anchor="end"
        )
    picture.text(left, top + height + 18, "most frequent distinct words (logarithmic)", size=11, colour="muted")
    picture.text(left + width, top + height + 18, f"{len(counts):,}", size=11, colour="muted", anchor="end")
    return picture
