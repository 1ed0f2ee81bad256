"""Batched rounds on the sample corpus: which pairs one round merges, and how many merges the rounds make.

`learn_in_rounds` follows the rule of cpp/src/merge/rounds.cpp with plain dictionaries. A test compares its merges with
those of the sequential loop in `gristmill.reference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from gristmill.reference import merge_pair
from pictures.sample import sample_words
from pictures.svg import Picture
from pictures.symbol_array import show_pair

Pair = tuple[bytes, bytes]
NUM_MERGES = 300


@dataclass
class Round:
    """One round: the pairs in order of their counts, the batch taken from them, and the merges that were kept."""

    ranked: list[tuple[Pair, int]]
    batch: list[Pair]
    kept: int
    blocker: Pair | None  # the first pair that interferes with the batch
    overtaker: tuple[Pair, int] | None  # the new pair that cut the batch, with its count


def count_pairs(words: list[list[bytes]], weights: list[int]) -> dict[Pair, int]:
    """Return the weighted number of occurrences of every pair."""
    counts: dict[Pair, int] = {}
    for word, weight in zip(words, weights, strict=True):
        for pair in pairwise(word):
            counts[pair] = counts.get(pair, 0) + weight
    return counts


def learn_in_rounds(counted: Mapping[bytes, int], num_merges: int) -> tuple[list[Pair], list[Round]]:
    """Return the merges, and the rounds that made them."""
    words = [[bytes([byte]) for byte in word] for word in counted]
    weights = list(counted.values())
    merges: list[Pair] = []
    rounds: list[Round] = []
    while len(merges) < num_merges:
        counts = count_pairs(words, weights)
        if not counts:
            break
        ranked = sorted(counts, key=lambda pair: (counts[pair], pair), reverse=True)
        batch, blocker = _take_batch(ranked[: num_merges - len(merges)])
        words, kept, overtaker = _apply(words, weights, batch, counts)
        merges += batch[:kept]
        rounds.append(Round([(pair, counts[pair]) for pair in ranked], batch, kept, blocker, overtaker))
    return merges, rounds


def _take_batch(ranked: list[Pair]) -> tuple[list[Pair], Pair | None]:
    lefts: set[bytes] = set()
    rights: set[bytes] = set()
    batch: list[Pair] = []
    for pair in ranked:
        # Merging (a, b) changes the count of (c, d) only if d == a or c == b.
        if batch and (pair[1] in lefts or pair[0] in rights):
            return batch, pair
        batch.append(pair)
        lefts.add(pair[0])
        rights.add(pair[1])
        if pair[0] == pair[1]:  # the pair interferes with itself: nothing can be taken with it
            return batch, None
    return batch, None


def _apply(
    words: list[list[bytes]], weights: list[int], batch: list[Pair], counts: Mapping[Pair, int]
) -> tuple[list[list[bytes]], int, tuple[Pair, int] | None]:
    """Merge the batch in order, but stop before a merge that a new pair overtakes."""
    best_new: tuple[Pair, int] | None = None
    for kept, pair in enumerate(batch):
        if best_new is not None and best_new[1] >= counts[pair]:
            return words, kept, best_new
        words = [merge_pair(word, pair) for word in words]
        token = pair[0] + pair[1]
        new = {each: n for each, n in count_pairs(words, weights).items() if token in each}
        for each, n in new.items():
            if best_new is None or n > best_new[1]:
                best_new = (each, n)
    return words, len(batch), None


@cache
def sample_rounds() -> list[Round]:
    """Return the rounds of the first merges of the sample corpus."""
    return learn_in_rounds(sample_words(), NUM_MERGES)[1]


def draw_batch() -> Picture:
    """Draw one round: the ranked pairs, the batch, and the pair that ends it."""
    number, chosen = next(
        (number, each)
        for number, each in enumerate(sample_rounds(), start=1)
        if 6 <= each.kept == len(each.batch) <= 9 and each.blocker
    )
    blocker = chosen.blocker
    assert blocker is not None
    culprit = next(each for each in chosen.batch if blocker[1] == each[0] or blocker[0] == each[1])
    picture = Picture(
        "One round",
        "Pairs ranked by count. The first ones do not interfere with each other and are merged in one round; the next "
        "pair shares a symbol with one of them and waits for the next round.",
    )
    picture.text(12, 24, f"Round {number}: the most frequent pairs of the sample corpus", bold=True)
    y = 36.0
    for pair, count in chosen.ranked[: len(chosen.batch) + 2]:
        taken, blocked = pair in chosen.batch, pair == blocker
        fill, colour = ("third-fill", "third") if taken else ("accent-fill", "accent") if blocked else ("cell", "ink")
        picture.chip(12, y, show_pair(pair), fill=fill, colour=colour)
        picture.text(190, y + 15.5, f"{count:,}", mono=True, anchor="end")
        shared = show_pair(culprit).replace(" + ", " ")
        note = "merged in this round" if taken else f"waits: it touches “{shared}”" if blocked else "waits"
        picture.text(206, y + 15.5, note, size=12, colour=colour if taken or blocked else "muted")
        y += 28
    picture.prose(
        12,
        y + 16,
        "Merging (a, b) changes the count of (c, d) only if d\u00a0=\u00a0a or c\u00a0=\u00a0b. So all green pairs "
        "keep their counts and their order while they are merged, and every thread can merge them in its part of the "
        "array.",
    )
    return picture


def draw_rounds() -> Picture:
    """Draw the number of merges of every round."""
    rounds = sample_rounds()
    num_merges = sum(each.kept for each in rounds)
    picture = Picture(
        "Merges per round",
        f"A bar for each of {len(rounds)} rounds, which make {num_merges} merges: how many merges the round kept.",
    )
    title = f"{num_merges} merges of the sample corpus take {len(rounds)} rounds"
    picture.text(12, 24, title, bold=True)
    left, bottom, height = 40, 190, 140
    most = max(each.kept for each in rounds)
    step = (picture.width - left - 16) / len(rounds)
    for tick in range(0, most + 1, 4):
        y = bottom - tick / most * height
        picture.line(left, y, picture.width - 12, y, colour="cell")
        picture.text(left - 6, y + 4, str(tick), size=11, colour="muted", anchor="end")
    for number, each in enumerate(rounds):
        bar = each.kept / most * height
        colour = "accent" if each.overtaker else "third"
        picture.rect(left + number * step, bottom - bar, max(step - 1, 1), bar, fill=colour, line="none", r=0)
    picture.text(left, bottom + 18, "round", size=11, colour="muted")
    picture.text(picture.width - 12, bottom + 18, str(len(rounds)), size=11, colour="muted", anchor="end")
    picture.rect(12, 222, 12, 12, fill="third", line="none")
    picture.text(30, 232, "the batch ended at a pair that interferes", size=12, colour="muted")
    picture.rect(12, 242, 12, 12, fill="accent", line="none")
    picture.text(30, 252, "cut: a new pair overtook a later merge of the batch", size=12, colour="muted")
    return picture
