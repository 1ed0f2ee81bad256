"""WindowOrder and MixedOrder: the window at each place of the endless sequence of windows, computed on demand.

Shapes: B windows per batch, P batches computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import OptionError
from gristmill.lm.data.permutation import derived_seed, number_below, permuted

__all__ = ["BatchOrder", "MixedOrder", "Order", "WindowOrder", "check_weights", "shares_of"]

# Batches computed at once, and the number of such blocks to cache: training and the prefetching thread use neighbouring
# blocks.
BLOCK_BATCHES = 64
NUM_BLOCKS = 4

# A mixture has its shares, up to rounding, in every MIXTURE_BLOCK of sequences, and exactly in every PERIOD.
MIXTURE_BLOCK = 1_000
NUM_MIXTURE_BLOCKS = 64  # blocks to cache
PERIOD = 1_000_000


class Order(Protocol):
    """An endless sequence of windows, each given by its first token."""

    num_windows: int

    def starts(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first tokens of the windows at these places of the sequence."""

    def in_text_order(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first tokens of the windows with these numbers, counted along the text."""


class WindowOrder:
    """All windows of epoch 0, shuffled, then all of epoch 1, and so on."""

    def __init__(self, num_tokens: int, context_length: int, *, seed: int, shift: bool) -> None:
        """With `shift`, the windows of every epoch after the first start at another offset (see `starts`)."""
        self.num_windows = (num_tokens - 1) // context_length
        self._length, self._seed, self._shift = context_length, seed, shift
        self._last_start = num_tokens - 1 - context_length

    def starts(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first tokens of the windows at these places.

        The windows of a shifted epoch start `offset(epoch)` tokens later. Only the last window can exceed the end; it
        is moved back, so every epoch has the same number of windows.
        """
        epochs, positions = np.divmod(places, self.num_windows)
        starts = np.empty_like(positions)
        for epoch in _distinct(epochs):
            here = epochs == epoch
            windows = permuted(positions[here], self.num_windows, seed=self._seed, epoch=epoch)
            starts[here] = np.minimum(windows * self._length + self.offset(epoch), self._last_start)
        return starts

    def offset(self, epoch: int) -> int:
        """Return the first token of the first window of an epoch, below `context_length`."""
        is_shifted = self._shift and epoch > 0
        return number_below(self._length, seed=self._seed, epoch=epoch) if is_shifted else 0

    def in_text_order(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first tokens of these windows of epoch 0."""
        return windows * self._length


class MixedOrder:
    """The windows of several sources in fixed shares. The tokens of the sources are numbered one source after another.

    Place n belongs to block n // 1,000. The share of a source determines how many places of a block it gets, and the
    seed shuffles which ones. A source gives its windows in its own order, each once per epoch of that source.
    """

    def __init__(
        self, num_tokens: Sequence[int], context_length: int, *, shares: Sequence[int], seed: int, shift: bool
    ) -> None:
        """`shares`: out of 1,000,000, from `shares_of`."""
        self._orders = [
            WindowOrder(number, context_length, seed=derived_seed(seed, i + 1), shift=shift)
            for i, number in enumerate(num_tokens)
        ]
        self._bases = [0, *np.cumsum(num_tokens).tolist()]
        self._first_windows = np.cumsum([0, *(order.num_windows for order in self._orders)])
        self.num_windows = int(self._first_windows[-1])
        self.shares = list(shares)
        self._seed, self._shares = derived_seed(seed, 0), np.array(shares)
        self._given = _given_before_block(tuple(shares))
        self._block = lru_cache(NUM_MIXTURE_BLOCKS)(self._make_block)

    def starts(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first tokens of the windows at these places, counted over the tokens of all sources."""
        sources, places_there = self.sources(places)
        starts = np.empty_like(places)
        for source, (order, base) in enumerate(zip(self._orders, self._bases, strict=False)):
            here = sources == source
            if here.any():
                starts[here] = order.starts(places_there[here]) + base
        return starts

    def sources(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (the source of each place, the place in the sequence of that source)."""
        blocks, positions = np.divmod(places, MIXTURE_BLOCK)
        sources, places_there = np.empty_like(places), np.empty_like(places)
        for block in _distinct(blocks):
            here = blocks == block
            of_block, there = self._block(block)
            sources[here], places_there[here] = of_block[positions[here]], there[positions[here]]
        return sources, places_there

    def _make_block(self, block: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the same for all places of a block."""
        period, row = divmod(block, PERIOD // MIXTURE_BLOCK)
        given = self._given[row]
        counts = self._given[row + 1] - given
        sources = np.repeat(np.arange(len(counts)), counts)
        sources = sources[permuted(np.arange(MIXTURE_BLOCK), MIXTURE_BLOCK, seed=self._seed, epoch=block)]
        # The sort is stable, so a source gives its windows in order.
        by_source = np.argsort(sources, kind="stable")
        places_there = np.empty_like(sources)
        first = period * self._shares + given - (np.cumsum(counts) - counts)
        places_there[by_source] = np.arange(MIXTURE_BLOCK) + np.repeat(first, counts)
        return sources, places_there

    def in_text_order(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first tokens of these windows of epoch 0, numbered one source after another."""
        sources = np.searchsorted(self._first_windows, windows, side="right") - 1
        starts = np.empty_like(windows)
        for source, order in enumerate(self._orders):
            here = sources == source
            starts[here] = order.in_text_order(windows[here] - self._first_windows[source]) + self._bases[source]
        return starts


class BatchOrder:
    """The windows of batches, computed for many steps at once, because a numpy call has a high fixed cost."""

    def __init__(self, order: Order, batch_size: int) -> None:
        self._order, self._batch_size = order, batch_size
        self._block = lru_cache(NUM_BLOCKS)(self._make_block)

    def starts(self, first: int, stride: int) -> NDArray[np.int64]:
        """Return starts_B, the first tokens of the windows from place `first`. Batches are `stride` places apart."""
        number, begin = divmod(first, stride)
        block, row = divmod(number, BLOCK_BATCHES)
        starts_B: NDArray[np.int64] = self._block(block, begin, stride)[row].copy()
        return starts_B

    def _make_block(self, block: int, begin: int, stride: int) -> NDArray[np.int64]:
        firsts_P = np.arange(block * BLOCK_BATCHES, (block + 1) * BLOCK_BATCHES) * stride + begin
        return self._order.starts(firsts_P[:, None] + np.arange(self._batch_size))


def _distinct(numbers: NDArray[np.int64]) -> list[int]:
    """Return the distinct numbers, often only one or two."""
    least, greatest = int(numbers.min()), int(numbers.max())
    if greatest - least < 2:
        return list(range(least, greatest + 1))
    found: list[int] = np.unique(numbers).tolist()
    return found


def check_weights(weights: Sequence[Any], num_sources: int) -> list[float]:
    """Return the weights as floats; raise `OptionError` unless there is one positive number per source."""
    if len(weights) != num_sources:
        raise OptionError(f"weights has {len(weights)} numbers for {num_sources} sources. Pass one weight per source.")
    numbers = []
    for weight in weights:
        is_number = isinstance(weight, int | float | np.integer | np.floating) and not isinstance(weight, bool)
        if not is_number or not 0 < weight < float("inf"):
            raise OptionError(f"the weight {weight!r} is not a positive number. Pass a weight > 0, or leave it out.")
        numbers.append(float(weight))
    return numbers


def shares_of(weights: Sequence[float]) -> tuple[int, ...]:
    """Return the shares of a mixture out of 1,000,000, rounded by largest remainder; no share is 0.

    >>> shares_of([2, 1])
    (666667, 333333)
    """
    exact = np.array(weights, np.float64) / max(weights)  # the sum of huge weights would not be finite
    exact *= PERIOD / exact.sum()
    shares = np.maximum(np.floor(exact).astype(np.int64), 1)
    while int(shares.sum()) < PERIOD:
        shares[np.argmax(exact - shares)] += 1
    while int(shares.sum()) > PERIOD:
        shares[np.argmax(np.where(shares > 1, shares - exact, -np.inf))] -= 1
    return tuple(shares.tolist())


@lru_cache(8)
def _given_before_block(shares: tuple[int, ...]) -> NDArray[np.int64]:
    """Return how many windows each source has given before each block of a period, and at its end.

    Sequences are assigned to sources by Webster's method: sequence j of a source has the time (j + 1/2) / share. So the
    count of a source never decreases, and stays close to its share.
    """
    times = np.concatenate([(np.arange(share) + 0.5) / share for share in shares])
    sources = np.repeat(np.arange(len(shares)), shares)[np.argsort(times, kind="stable")]
    counts = [np.bincount(block, minlength=len(shares)) for block in sources.reshape(-1, MIXTURE_BLOCK)]
    return np.vstack([np.zeros(len(shares), np.int64), np.cumsum(counts, axis=0)])
