"""Estimate the time of the merges that a program did not learn within its time limit.

A program that counts all pairs before every merge visits every token of every word, so the time of a merge is taken as
`fixed + per_token * tokens`, where `tokens` is the number of tokens in the words before the merge. A program with an
inverted index takes `fixed + per_change * changes`, where `changes` is the number of places that the merge before it
changed. Both quantities are known for all merges, because the native core has learned them. The two constants are
fitted to the measured merges by least squares, neither below zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from gristmill.reference.pipeline import Pair, merge_pair

__all__ = ["estimate_merge_seconds", "fit", "places_changed", "work_per_merge"]

MAX_WORDS = 20_000


def places_changed(words: Sequence[bytes], merges: Sequence[Pair]) -> tuple[int, list[int]]:
    """Return the number of bytes in the words, and the number of places where each merge applies in them.

    Applying the merges of a word in the order in which they were learned gives the same tokens as training, so this
    needs no counts. Of more than `MAX_WORDS` words, only every n-th is used, because only the proportions matter.

    >>> places_changed([b"abab", b"abc"], [(b"a", b"b"), (b"ab", b"c")])
    (7, [3, 1])
    """
    rank_of = {pair: rank for rank, pair in enumerate(merges)}
    chosen = words[:: -(-len(words) // MAX_WORDS)] if words else []
    changes = [0] * len(merges)
    for word in chosen:
        tokens = [bytes([byte]) for byte in word]
        while mergeable := set(pairwise(tokens)) & rank_of.keys():
            pair = min(mergeable, key=rank_of.__getitem__)
            merged = merge_pair(tokens, pair)
            changes[rank_of[pair]] += len(tokens) - len(merged)
            tokens = merged
    return sum(map(len, chosen)), changes


def work_per_merge(num_bytes: int, changes: Sequence[int], *, is_incremental: bool) -> list[float]:
    """Return the quantity that the time of each merge depends on.

    >>> work_per_merge(7, [3, 1], is_incremental=False)
    [7.0, 4.0]
    >>> work_per_merge(7, [3, 1], is_incremental=True)
    [0.0, 3.0]
    """
    work: list[float] = []
    tokens = num_bytes
    for i, changed in enumerate(changes):
        work.append(float(changes[i - 1] if i else 0) if is_incremental else float(tokens))
        tokens -= changed
    return work


def estimate_merge_seconds(measured: Sequence[float], work: Sequence[float]) -> float:
    """Return the time of all merges: the measured ones, and the others by the fitted line.

    The first merge includes the setup of the program, so it counts as measured but is left out of the fit.

    >>> estimate_merge_seconds([9.0, 5.0, 4.0], [20.0, 10.0, 8.0, 6.0])
    21.0
    """
    first = 1 if len(measured) > 1 else 0
    fixed, per_unit = fit(work[first : len(measured)], measured[first:])
    return sum(measured) + sum(fixed + per_unit * units for units in work[len(measured) :])


def fit(work: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Return (fixed, per unit of work) of the least-squares line with both >= 0.

    >>> fit([1.0, 2.0, 3.0], [5.0, 7.0, 9.0])
    (3.0, 2.0)
    >>> fit([1.0, 2.0], [2.0, 5.0])  # the plain line would start below zero
    (0.0, 2.4)
    >>> fit([1.0, 2.0], [5.0, 3.0])  # it would fall
    (4.0, 0.0)
    """
    n = len(seconds)
    mean_work, mean_seconds = sum(work) / n, sum(seconds) / n
    spread = sum((units - mean_work) ** 2 for units in work)
    if spread == 0:
        return mean_seconds, 0.0
    joint = sum((units - mean_work) * (each - mean_seconds) for units, each in zip(work, seconds, strict=True))
    per_unit = joint / spread
    fixed = mean_seconds - per_unit * mean_work
    if per_unit < 0:
        return mean_seconds, 0.0
    if fixed < 0:
        squares = sum(units * units for units in work)
        return 0.0, sum(units * each for units, each in zip(work, seconds, strict=True)) / squares
    return fixed, per_unit


def check_rule(measured: Sequence[float], work: Sequence[float], *, share: float = 0.1) -> Mapping[str, float] | None:
    """Return what the rule says about a complete run from its first merges, beside the measured time.

    None for a run with fewer than 100 merges.
    """
    num_first = int(len(measured) * share)
    if len(measured) < 100:
        return None
    estimated, total = estimate_merge_seconds(measured[:num_first], work), sum(measured)
    return {"share": share, "estimated_seconds": estimated, "measured_seconds": total, "error": estimated / total - 1}
