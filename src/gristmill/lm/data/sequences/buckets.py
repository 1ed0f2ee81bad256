"""Buckets: the few widths that sequences are padded to, chosen to minimize padding.

More widths mean less padding, but sequences are shuffled only among those of the same width, so there are few widths.

Shapes: N sequences, M candidate bounds, C their cumulative counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["bucket_of_length", "choose_bounds"]


def choose_bounds(lengths: NDArray[np.int64], *, num_buckets: int = 16, multiple: int = 8, longest: int) -> list[int]:
    """Return at most `num_buckets` bounds that minimize the total padding of all sequences.

    A sequence is padded to the smallest bound that is not below its length. Bounds are multiples of `multiple`, which
    suit matrix units, powers of two below it, or `longest` itself, the maximum of lengths and bounds. The result is
    optimal, by dynamic programming over the histogram of lengths.

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
    """Return the smallest allowed bound for each length from 0."""
    widths = -(-np.arange(max_length + 1) // multiple) * multiple
    powers = [1 << power for power in range(multiple.bit_length()) if 1 << power < multiple]
    for power in reversed(powers):  # one vector per document is a sequence of 1, which must not be padded to 8
        widths[: power + 1] = power
    return np.minimum(widths, longest)


def _best_ends(bounds_M: NDArray[np.int64], counts_M: NDArray[np.int64], num_buckets: int) -> list[int]:
    """Return the candidates that end a bucket, so that the sum of count * bound over buckets is minimal.

    slots[m] is the minimal number of slots for all sequences up to candidate m with the buckets allowed so far. Another
    bucket (j, m] costs bounds[m] times its number of sequences. Integers avoid ties that depend on rounding.
    """
    before_M = np.cumsum(counts_M)
    slots_M = before_M * bounds_M  # with one bucket
    begins = []  # for each further bucket and m: the candidate that ends the previous bucket
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
    """Return a table with the bucket of each length from 0 to the last bound.

    >>> bucket_of_length([2, 3]).tolist()
    [0, 0, 0, 1]
    """
    return np.searchsorted(bounds, np.arange(bounds[-1] + 1), side="left").astype(np.int64)
