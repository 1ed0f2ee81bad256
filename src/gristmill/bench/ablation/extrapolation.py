"""Estimate the time of the merges that a program did not learn within its time limit.

The rule: the time of a merge is a sum of two terms, `x * u + y * v`.

    (a) to (e)  visit every token of every word:   u = 1, v = the number of tokens in the words before the merge
    (f), (g)    search all pairs for the best one,
                then change some of the words:     u = the number of pairs, v = the places that the last merge changed

`u` and `v` are known for all merges, because the native core has learned them. `x` and `y` are fitted to the measured
merges by least squares, neither below zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gristmill.reference.pipeline import Pair, merge_pair

__all__ = ["Course", "check_rule", "course_of", "estimate_merge_seconds", "fit"]

MAX_WORDS = 20_000
MIN_CHECKED_MERGES = 100


@dataclass(frozen=True)
class Course:
    """How the words change during training; each list has one number per merge."""

    tokens: list[int]  # tokens in the words before the merge
    pairs: list[int]  # distinct pairs in the words before the merge
    changes: list[int]  # places where the merge applies

    def work(self, *, is_incremental: bool) -> list[tuple[float, float]]:
        """Return `(u, v)` of each merge, as the docstring of this module defines them."""
        if is_incremental:
            return list(zip(map(float, self.pairs), [0.0, *map(float, self.changes[:-1])], strict=True))
        return [(1.0, float(tokens)) for tokens in self.tokens]


def course_of(words: Sequence[bytes], merges: Sequence[Pair]) -> Course:
    """Return the course of training on these words, given the merges.

    Each word is taken through its merges in the order in which they were learned, which gives the same tokens as
    training. A pair exists from the merge that makes the newer of its tokens until its last occurrence is merged away,
    without a gap. Of more than `MAX_WORDS` words only every n-th is used: only the proportions matter.

    >>> course_of([b"abab", b"abc"], [(b"a", b"b"), (b"ab", b"c")])
    Course(tokens=[7, 4], pairs=[3, 2], changes=[3, 1])
    """
    rank_of = {pair: rank for rank, pair in enumerate(merges)}
    changes = [0] * len(merges)
    begin_of: dict[Pair, int] = {}  # the first merge before which the pair exists
    end_of: dict[Pair, int] = {}  # the last one
    chosen = words[:: -(-len(words) // MAX_WORDS)] if words else []
    for word in chosen:
        tokens = [bytes([byte]) for byte in word]
        pairs, begin = set(pairwise(tokens)), 0
        while True:
            for pair in pairs:
                begin_of.setdefault(pair, begin)
            mergeable = pairs & rank_of.keys()
            if not mergeable:
                end_of.update(dict.fromkeys(pairs, len(merges)))
                break
            best = min(mergeable, key=rank_of.__getitem__)
            merged = merge_pair(tokens, best)
            changes[rank_of[best]] += len(tokens) - len(merged)
            tokens, before = merged, pairs
            pairs, begin = set(pairwise(tokens)), rank_of[best] + 1
            for pair in before - pairs:
                end_of[pair] = max(end_of.get(pair, 0), rank_of[best])
    return Course(
        tokens=_running(sum(map(len, chosen)), [-changed for changed in changes]),
        pairs=_running(0, _births_and_deaths(begin_of, end_of, len(merges)), after=False),
        changes=changes,
    )


def _births_and_deaths(begin_of: Mapping[Pair, int], end_of: Mapping[Pair, int], num_merges: int) -> list[int]:
    changes = [0] * (num_merges + 2)
    for begin in begin_of.values():
        changes[begin] += 1
    for end in end_of.values():
        changes[min(end, num_merges) + 1] -= 1
    return changes[:num_merges]


def _running(start: int, changes: Sequence[int], *, after: bool = True) -> list[int]:
    """Return the running sum: without the change at each place if it comes `after` it, else with it.

    >>> _running(7, [-3, -1]), _running(0, [3, -1], after=False)
    ([7, 4], [3, 2])
    """
    sums: list[int] = []
    for change in changes:
        sums.append(start if after else start + change)
        start += change
    return sums


def estimate_merge_seconds(measured: Sequence[float], work: Sequence[tuple[float, float]]) -> float:
    """Return the time of all merges: the measured ones, and the others by the rule.

    The first merge includes the setup of the program, so it counts as measured but is left out of the fit.

    >>> estimate_merge_seconds([9.0, 5.0, 4.0], [(1, 20), (1, 10), (1, 8), (1, 6)])
    21.0
    """
    first = 1 if len(measured) > 1 else 0
    x, y = fit(work[first : len(measured)], measured[first:])
    return sum(measured) + sum(x * u + y * v for u, v in work[len(measured) :])


def fit(work: Sequence[tuple[float, float]], seconds: Sequence[float]) -> tuple[float, float]:
    """Return the `(x, y)` with the least squared error of `x * u + y * v`, neither below zero.

    >>> fit([(1, 1), (1, 2), (1, 3)], [5.0, 7.0, 9.0])
    (3.0, 2.0)
    >>> fit([(1, 1), (1, 2)], [2.0, 5.0])  # without the limit, x would be -1
    (0.0, 2.4)
    >>> fit([(1, 1), (1, 2)], [5.0, 3.0])  # without the limit, y would be -2
    (4.0, 0.0)
    """
    uu, uv, vv = (sum(a[i] * a[j] for a in work) for i, j in ((0, 0), (0, 1), (1, 1)))
    ut, vt = (sum(a[i] * t for a, t in zip(work, seconds, strict=True)) for i in (0, 1))
    determinant = uu * vv - uv * uv
    if determinant > 1e-12 * uu * vv:
        x, y = (ut * vv - vt * uv) / determinant, (vt * uu - ut * uv) / determinant
        if x >= 0 and y >= 0:
            return x, y
    only_x, only_y = (ut / uu if uu else 0.0), (vt / vv if vv else 0.0)
    # The error of one term alone is the sum of the squared times less these products.
    return (only_x, 0.0) if only_x * ut >= only_y * vt else (0.0, only_y)


def check_rule(
    measured: Sequence[float], work: Sequence[tuple[float, float]], *, share: float = 0.1
) -> Mapping[str, float] | None:
    """Return what the rule says about a complete run from its first merges, beside the measured time.

    None for a run with fewer than 100 merges.
    """
    if len(measured) < MIN_CHECKED_MERGES:
        return None
    estimated, total = estimate_merge_seconds(measured[: int(len(measured) * share)], work), sum(measured)
    return {"share": share, "estimated_seconds": estimated, "measured_seconds": total, "error": estimated / total - 1}
