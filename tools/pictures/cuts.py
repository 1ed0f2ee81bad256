"""Where a text may be cut: pieces, cuts, and the blocks that threads take, from the core's own functions."""

from __future__ import annotations

import itertools

from gristmill import _core
from pictures.svg import Picture

TEXT = b"The mill ground 365 sacks of wheat, didn't it?  Yes!\nThen it rested."
BLOCK_BYTES = 24
PER_ROW = 24
CELL_WIDTH, CELL_HEIGHT = 17, 24


def block_stretches(cuts: list[int], size: int, block_bytes: int) -> list[tuple[int, int]]:
    """Return the bytes that each block of a text owns: from its first cut to the first cut at or after its end.

    >>> block_stretches([4, 9, 15], 20, 8)
    [(0, 9), (9, 20), (20, 20)]
    """

    def first_cut(at: int) -> int:
        return next((cut for cut in cuts if cut >= at), size) if at else 0

    bounds = [first_cut(at) for at in range(0, size, block_bytes)] + [size]
    return list(itertools.pairwise(bounds))


def draw_blocks() -> Picture:
    """Draw the pieces and cuts of a text, and which thread takes which part."""
    cuts = _core.find_cuts(TEXT, "gpt2").tolist()
    ends = set(_core.find_pieces(TEXT, "gpt2").tolist())
    stretches = block_stretches(cuts, len(TEXT), BLOCK_BYTES)
    picture = Picture(
        "Cuts of a text",
        "A text in cells, one per character. Triangles mark cuts: positions where the text may be divided without "
        "changing a piece. Each block of 24 bytes owns the text from its first cut to the first cut after its end.",
    )
    picture.text(12, 24, "Pieces, cuts and the owners of a text (gpt2 pattern)", bold=True)
    fills = ["accent-fill", "second-fill", "third-fill"]
    owner = {at: number for number, (begin, end) in enumerate(stretches) for at in range(begin, end)}
    bottom = _draw_text(picture, 40, cuts, ends, {at: fills[number] for at, number in owner.items()})
    y = bottom + 8
    for number, (begin, end) in enumerate(stretches):
        picture.rect(12, y - 10, 12, 12, fill=fills[number])
        first, last = number * BLOCK_BYTES, min(len(TEXT), (number + 1) * BLOCK_BYTES) - 1
        picture.text(30, y, f"block of bytes {first} to {last}: owns bytes {begin} to {end - 1}", size=12)
        y += 18
    picture.triangle(18, y - 6)
    picture.text(30, y + 2, "cut between two cells", size=12)
    picture.text(18, y + 20, "|", size=13, colour="ink", bold=True, anchor="middle")
    picture.text(30, y + 20, "end of a piece", size=12)
    picture.prose(
        12,
        y + 42,
        "Blocks end inside words, and threads do not communicate. A cut depends only on the few bytes around it, so "
        "both neighbours find the same one.",
    )
    return picture


def _draw_text(picture: Picture, y: float, cuts: list[int], ends: set[int], fills: dict[int, str]) -> float:
    for at, byte in enumerate(TEXT):
        x = 14 + at % PER_ROW * CELL_WIDTH
        top = y + at // PER_ROW * 46
        picture.rect(x, top, CELL_WIDTH, CELL_HEIGHT, fill=fills[at], line="none", r=0)
        shown = {" ": "␣", "\n": "⏎"}.get(chr(byte), chr(byte))
        colour = "muted" if byte in b" \n" else "ink"
        picture.text(x + CELL_WIDTH / 2, top + 16.5, shown, size=13, mono=True, anchor="middle", colour=colour)
        if at % PER_ROW == 0:
            picture.text(x, top - 3, str(at), size=10, colour="muted")
        if at + 1 in ends:
            picture.line(x + CELL_WIDTH, top, x + CELL_WIDTH, top + CELL_HEIGHT, colour="ink")
        if at + 1 in cuts:
            picture.triangle(x + CELL_WIDTH, top + CELL_HEIGHT + 1)
    return y + (len(TEXT) - 1) // PER_ROW * 46 + 60


def draw_newlines() -> Picture:
    """Draw which characters before a newline allow a cut, for each pattern."""
    cases = [("a letter", b"mill\nThen"), ("a number", b"1924\nThen"), ("punctuation", b"Yes!\nThen")]
    patterns = sorted(_core.PATTERNS)
    picture = Picture(
        "Cuts before a newline",
        "A table: whether a text may be cut before a newline after a letter, a number or punctuation, by pattern. "
        "Patterns that take newlines along with punctuation allow no cut after punctuation.",
    )
    picture.text(12, 24, "May a text be cut before a newline that follows …", bold=True)
    columns = [150, 245, 345]
    for (name, _), x in zip(cases, columns, strict=True):
        picture.text(x, 48, name, size=12, colour="muted", anchor="middle")
    y = 70.0
    for pattern in patterns:
        picture.text(12, y, pattern, mono=True)
        for (_, text), x in zip(cases, columns, strict=True):
            may = text.index(b"\n") in _core.find_cuts(text, pattern).tolist()
            kind = "third" if may else "accent"
            picture.rect(x - 22, y - 15, 44, 21, fill=f"{kind}-fill")
            picture.text(x, y, "yes" if may else "no", anchor="middle", colour=kind)
        y += 27
    picture.prose(
        12,
        y + 6,
        "In cl100k and related patterns, punctuation takes the newlines after it into its piece. A cut between the two "
        "would divide that piece.",
    )
    return picture
