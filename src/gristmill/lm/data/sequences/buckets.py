"""Buckets: the few widths that sequences of all lengths are padded to, chosen so that the padding is least.

Each further width takes padding away, but sequences are shuffled only among those of their width, so widths are few.

Shapes: N sequences, M candidates for a bound, C their cumulative counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["bucket_of_length", "choose_bounds"]


def choose_bounds(lengths: NDArray[np.int64], *, num_buckets: int = 16, multiple: int = 8, longest: int) -> list[int]:
    """The bounds, at most `num_buckets` of them, with which all sequences together have the least padding.

    A sequence is padded to the least bound that holds it. Bounds are multiples of `multiple`, which matrix units like,
    powers of two below it, or `longest` itself, which is the limit of lengths and of bounds. Exact: by dynamic
    programming over the histogram.

    >>> choose_bounds(np.array([7, 8, 8, 30, 31, 64]), num_buckets=2, longest=64)
    [8, 64]
    >>> choose_bounds(np.array([7, 8, 8, 30, 31, 64]), num_buckets=3, longest=64)
    [8, 32, 64]
    """
    histogram = np.bincount(lengths)
    counts = np.zeros(longest + 1, np.int64)
    np.add.at(counts, _widths(len(histogram) - 1, multiple, longest), histogram)
    candidates_M = np.flatnonzero(counts)
    if len(candidates_M) <= num_buckets:
        return [int(bound) for bound in candidates_M]
    return [int(bound) for bound in candidates_M[_best_ends(candidates_M, counts[candidates_M], num_buckets)]]


def _widths(max_length: int, multiple: int, longest: int) -> NDArray[np.int64]:
    """The least width that may be a bound for each length from 0 on."""
    widths = -(-np.arange(max_length + 1) // multiple) * multiple
    powers = [1 << power for power in range(multiple.bit_length()) if 1 << power < multiple]
    for power in reversed(powers):  # one vector per document is a sequence of 1, and must not become one of 8
        widths[: power + 1] = power
    return np.minimum(widths, longest)


def _best_ends(bounds_M: NDArray[np.int64], counts_M: NDArray[np.int64], num_buckets: int) -> list[int]:
    """Which candidates end a bucket, so that the sum of count * bound over buckets is least.

    slots[m] is the least number of slots for all sequences up to candidate m with the buckets allowed so far. One more
    bucket, (j, m], costs bounds[m] times the sequences in it. Whole numbers, so that no rounding chooses.
    """
    before_M = np.cumsum(counts_M)
    slots_M = before_M * bounds_M  # with one bucket
    begins = []  # for each further bucket and m: the candidate that ends the bucket before
    for _ in range(num_buckets - 1):
        begins_M = np.zeros(len(bounds_M), np.int64)
        more_M = slots_M.copy()
        for m in range(1, len(bounds_M)):
            candidates = slots_M[:m] + (before_M[m] - before_M[:m]) * bounds_M[m]
            begins_M[m] = candidates.argmin()
            more_M[m] = candidates[begins_M[m]]
        begins.append(begins_M)
        slots_M = more_M
    ends = [len(bounds_M) - 1]
    for begins_M in reversed(begins):
        ends.append(int(begins_M[ends[-1]]))
    return ends[::-1]


def bucket_of_length(bounds: list[int]) -> NDArray[np.int64]:
    """A table: the number of the bucket of each length from 0 to the last bound.

    >>> bucket_of_length([2, 3]).tolist()
    [0, 0, 0, 1]
    """
    return np.searchsorted(bounds, np.arange(bounds[-1] + 1), side="left").astype(np.int64)
