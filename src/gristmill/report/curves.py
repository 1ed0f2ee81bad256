"""Curves: reduce many points to few, so that a page stays small and a spike stays visible."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gristmill.report.records import Column

MAX_POINTS = 1_000
SMOOTHED_SHARE = 0.02  # of all points, on each side


def thinned(x: Column, y: Column, max_points: int = MAX_POINTS) -> tuple[Column, Column]:
    """Return at most `max_points` of the points, including the lowest and highest of every interval.

    Points that are not finite are left out.

    >>> x = np.arange(10_000.0)
    >>> y = np.where(x == 4_321, 99.0, 1.0)
    >>> thin_x, thin_y = thinned(x, y, 100)
    >>> len(thin_x) <= 100, float(thin_y.max())
    (True, 99.0)
    """
    finite = np.isfinite(y)
    x, y = x[finite], y[finite]
    if len(y) <= max_points:
        return x, y
    edges = np.linspace(0, len(y), max_points // 2, dtype=int)
    kept = {0, len(y) - 1}
    for start, end in pairwise(edges):
        kept.update((start + int(y[start:end].argmin()), start + int(y[start:end].argmax())))
    indices = sorted(kept)
    return x[indices], y[indices]


def smoothed(y: Column, share: float = SMOOTHED_SHARE) -> Column:
    """Return the running mean over a share of the points on each side.

    At the beginning, where curves are steep, the window is as narrow to the right as to the left, so that the mean does
    not run ahead of the curve. At the end it is one-sided, so the last value is a mean too.

    >>> smoothed(np.array([8.0, 4.0, 3.0, 3.0, 2.0]), share=0.2).tolist()
    [8.0, 5.0, 3.3333333333333335, 2.6666666666666665, 2.5]
    """
    finite = np.isfinite(y)
    places = np.arange(len(y))
    width = max(1, round(len(y) * share))
    first = places - np.minimum(places, width)
    last = places + np.minimum(np.minimum(len(y) - 1 - places, width), places)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, y, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    num_points = counts[last + 1] - counts[first]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (sums[last + 1] - sums[first]) / num_points
    return np.where(finite, mean, np.nan)  # a gap stays a gap
