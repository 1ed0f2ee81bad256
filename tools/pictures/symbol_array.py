"""The symbol array and its posting lists, for four words: before, during and after two merges.

`SymbolArray` is a plain copy of the data structure in cpp/src/merge: one cell per byte, ids in the first and the last
cell of a token, one list of positions per pair. A test compares its merges with those of the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pictures.svg import Picture, show_token

WORDS = {b"low": 5, b"lower": 2, b"newest": 6, b"widest": 3}
SENTINEL, HOLE = -1, -2


@dataclass
class Step:
    """Result of one merge."""

    pair: tuple[int, int]
    made: int
    postings: list[int]
    count: int
    changes: dict[tuple[int, int], int]  # count changes of other pairs


@dataclass
class SymbolArray:
    """Words as one array of cells. `tokens[id]` are the bytes of an id."""

    words: Mapping[bytes, int]
    cells: list[int] = field(default_factory=lambda: [SENTINEL])
    weights: list[int] = field(default_factory=lambda: [0])
    tokens: list[bytes] = field(default_factory=lambda: [bytes([byte]) for byte in range(256)])

    def __post_init__(self) -> None:
        for word, count in self.words.items():
            self.cells += [*word, SENTINEL]
            self.weights += [count] * len(word) + [0]
        self.postings: dict[tuple[int, int], list[int]] = {}
        self.counts: dict[tuple[int, int], int] = {}
        for at in range(1, len(self.cells) - 1):
            self._add(at, self.postings, self.counts)

    def _add(self, at: int, postings: dict[tuple[int, int], list[int]], counts: dict[tuple[int, int], int]) -> None:
        left, right = self.cells[at], self.right_of(at)
        if SENTINEL not in (left, right):
            postings.setdefault((left, right), []).append(at)
            counts[left, right] = counts.get((left, right), 0) + self.weights[at]

    def right_of(self, at: int) -> int:
        """Return the symbol after the token that begins at cell `at`."""
        return self.cells[at + len(self.tokens[self.cells[at]])] if self.cells[at] >= 0 else SENTINEL

    def best(self) -> tuple[int, int] | None:
        """Return the pair with the greatest count, then the greatest bytes."""
        alive = [pair for pair, count in self.counts.items() if count > 0]
        key = lambda pair: (self.counts[pair], self.tokens[pair[0]], self.tokens[pair[1]])  # noqa: E731
        return max(alive, key=key) if alive else None

    def merge(self, pair: tuple[int, int]) -> Step:
        """Merge `pair` at every posting that still holds, and update counts and lists of the neighbours."""
        left, right = pair
        made, length_left = len(self.tokens), len(self.tokens[left])
        self.tokens.append(self.tokens[left] + self.tokens[right])
        before = dict(self.counts)
        merged = []
        for at in self.postings.pop(pair):
            if self.cells[at] != left or self.right_of(at) != right:
                continue  # an overlapping occurrence was merged first
            end = at + len(self.tokens[made])
            for pair_lost in self._neighbour_pairs(at, end, left, right):
                self.counts[pair_lost] -= self.weights[at]
            self.cells[at + length_left] = HOLE
            self.cells[at] = self.cells[end - 1] = made
            merged.append(at)
        self.counts[pair] = 0
        self._post_new_pairs(merged, made)
        changes = {
            each: self.counts.get(each, 0) - before.get(each, 0)
            for each in self.counts.keys() | before.keys()
            if each != pair and self.counts.get(each, 0) != before.get(each, 0)
        }
        return Step(pair, made, merged, before[pair], changes)

    def _neighbour_pairs(self, at: int, end: int, left: int, right: int) -> list[tuple[int, int]]:
        pairs = [(self.cells[at - 1], left), (right, self.cells[end])]
        return [each for each in pairs if each in self.counts]

    def _post_new_pairs(self, merged: list[int], made: int) -> None:
        starts = set()
        for at in merged:
            starts.add(at)
            if self.cells[at - 1] >= 0:
                starts.add(at - len(self.tokens[self.cells[at - 1]]))
        for at in sorted(starts):
            if made in (self.cells[at], self.right_of(at)):
                self._add(at, self.postings, self.counts)


def learn(words: Mapping[bytes, int], num_merges: int) -> list[tuple[bytes, bytes]]:
    """Return the merges that the array learns."""
    array = SymbolArray(words)
    merges: list[tuple[bytes, bytes]] = []
    while len(merges) < num_merges and (pair := array.best()):
        array.merge(pair)
        merges.append((array.tokens[pair[0]], array.tokens[pair[1]]))
    return merges


def draw_array() -> Picture:
    """Draw the array of the four words and the longest posting lists."""
    array = SymbolArray(WORDS)
    picture = Picture(
        "Symbol array and posting lists",
        "Four words in one array of cells, one cell per byte, with sentinels between the words, and for the most "
        "frequent pairs of neighbours their counts and the positions where they occur.",
    )
    picture.text(12, 24, "Words and counts", bold=True)
    x = 12.0
    for word, count in WORDS.items():
        x += picture.chip(x, 34, f"{word.decode()} × {count}") + 8
    picture.text(12, 84, "Symbol array: one cell per byte, ■ is a sentinel", bold=True)
    bottom = _draw_cells(picture, array, y=94, per_row=11)
    y = bottom + 26
    picture.text(12, y, "Posting lists of the most frequent pairs", bold=True)
    picture.text(12, y + 20, "pair", size=12, colour="muted")
    picture.text(84, y + 20, "count", size=12, colour="muted")
    picture.text(140, y + 20, "positions of the left symbol", size=12, colour="muted")
    ranked = sorted(array.counts, key=lambda pair: (-array.counts[pair], array.postings[pair]))[:6]
    y += 28
    for pair in ranked:
        is_best = pair == array.best()
        name = " ".join(chr(symbol) for symbol in pair)
        picture.chip(12, y, name, fill="accent-fill" if is_best else "cell", colour="accent" if is_best else "ink")
        picture.text(118, y + 15.5, str(array.counts[pair]), mono=True, anchor="end")
        x = 140.0
        for position in array.postings[pair]:
            x += picture.chip(x, y, str(position), fill="paper") + 6
        if is_best:
            picture.text(x + 6, y + 15.5, "merged next", size=12, colour="accent")
        y += 28
    return picture


def draw_merge() -> Picture:
    """Draw what two merges change in one word, and the counts that change."""
    array = SymbolArray(WORDS)
    picture = Picture(
        "Two merges in the symbol array",
        "The cells of the word 'newest' before and after the merges of s and t, and of e and st: a token has its id in "
        "its first and last cell; the table lists the pairs whose counts change.",
    )
    start = array.cells.index(ord("n"))
    y = 24.0
    picture.text(12, y, "The word “newest” before the first merge", bold=True)
    _draw_word(picture, array, start, 6, y + 10, highlight=())
    y += 84
    for _ in range(2):
        pair = array.best()
        assert pair is not None
        step = array.merge(pair)
        names = [array.tokens[symbol].decode() for symbol in step.pair]
        made = array.tokens[step.made].decode()
        title = f"Merge {step.made - 255}: {names[0]} + {names[1]} → {made}, id {step.made}"
        picture.text(12, y, title, bold=True)
        at = next(at for at in step.postings if start <= at < start + 6)
        cells = range(at - start, at - start + len(array.tokens[step.made]))
        _draw_word(picture, array, start, 6, y + 10, highlight=cells)
        y += 76
        picture.text(12, y, "Counts that change:", size=12, colour="muted")
        x = 140.0
        for changed in sorted(step.changes, key=lambda each: (step.changes[each], each)):
            shown = " ".join(array.tokens[symbol].decode() for symbol in changed)
            amount = step.changes[changed]
            kind = "third" if amount > 0 else "second"
            label = f"{shown} {amount:+d}"
            x += picture.chip(x, y - 15, label, fill=f"{kind}-fill", colour=kind) + 6
        y += 34
    picture.prose(
        12,
        y,
        "A token has its id in its first and in its last cell, so both neighbours are one read away. "
        "× is a hole: no old posting can mistake it for a token.",
    )
    return picture


def _draw_cells(picture: Picture, array: SymbolArray, *, y: float, per_row: int) -> float:
    size = 36
    for at, symbol in enumerate(array.cells):
        column, row = at % per_row, at // per_row
        x, top = 12 + column * (size + 2), y + row * (size + 22)
        sentinel = symbol == SENTINEL
        picture.rect(x, top, size, size, fill="line" if sentinel else "cell")
        picture.text(
            x + size / 2,
            top + 24,
            "■" if sentinel else chr(symbol),
            size=16,
            mono=True,
            anchor="middle",
            colour="paper" if sentinel else "ink",
        )
        picture.text(x + size / 2, top + size + 13, str(at), size=11, colour="muted", anchor="middle")
    return y + (len(array.cells) - 1) // per_row * (size + 22) + size + 16


def _draw_word(
    picture: Picture, array: SymbolArray, start: int, length: int, y: float, *, highlight: range | tuple[()]
) -> None:
    size, x = 44, 12.0
    for offset in range(-1, length + 1):
        symbol = array.cells[start + offset]
        marked = offset in highlight
        shown = {SENTINEL: "■", HOLE: "×"}.get(symbol, chr(symbol) if 0 <= symbol < 256 else str(symbol))
        fill = "line" if symbol == SENTINEL else "accent-fill" if marked else "cell"
        colour = "paper" if symbol == SENTINEL else "accent" if marked else "ink"
        picture.rect(x, y, size, 34, fill=fill)
        picture.text(x + size / 2, y + 22.5, shown, size=15, mono=True, anchor="middle", colour=colour)
        picture.text(x + size / 2, y + 47, str(start + offset), size=11, colour="muted", anchor="middle")
        x += size + 2


def show_pair(pair: tuple[bytes, bytes]) -> str:
    """Return a pair as two tokens with a plus sign."""
    return " + ".join(show_token(token) for token in pair)
