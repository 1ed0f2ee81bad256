"""Order: the sequences of each micro-batch of a run, computed from its number alone.

A unit has the sequences of all ranks in a micro-step: U = world_size * batch_size sequences of similar length, padded
to one width, so that no rank waits for another. The units of an epoch, before they are shuffled:

    bucket 0, shuffled | bucket 1, shuffled | … | bucket K - 1, shuffled | omitted
    unit 0 | unit 1 | unit 2 | …                                         |

The remainder of a bucket moves up to the next longer one, and fewer than U sequences are omitted in all, different ones
in each epoch. The order is not stored: the item at a place is a function of the place.

Shapes: N sequences, K buckets, P units computed at once, U sequences per unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import TrainingError
from gristmill.lm.data.permutation import permuted
from gristmill.lm.data.sequences.buckets import bucket_of_length

__all__ = ["Order", "Unit"]

# Units computed at once, so that the overhead of numpy calls is negligible.
BLOCK_UNITS = 64
# Blocks to cache: training and the prefetching thread use neighbouring blocks.
NUM_BLOCKS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """The sequences of all ranks in a micro-step, their padded width, and their tokens without padding."""

    sequences_U: NDArray[np.int64]
    width: int
    num_tokens: int

    def of_rank(self, rank: int, batch_size: int) -> NDArray[np.int64]:
        """Return sequences_B, those of one rank."""
        return self.sequences_U[rank * batch_size : (rank + 1) * batch_size]


class Order:
    """The endless sequence of units: those of epoch 0, shuffled, then those of epoch 1, and so on."""

    def __init__(self, lengths_N: NDArray[np.int64], bounds: list[int], *, seed: int) -> None:
        """Sort the sequences by bucket. `bounds` must cover all lengths."""
        self._lengths_N = lengths_N
        self._bounds_K = np.array(bounds)
        self._seed = seed
        # With one byte per sequence, numpy uses a fast radix sort. Ties stay in order.
        buckets_N = bucket_of_length(bounds).astype(np.min_scalar_type(len(bounds)))[lengths_N]
        self._by_bucket_N = np.argsort(buckets_N, kind="stable")
        self._sizes_K = np.bincount(buckets_N, minlength=len(bounds))
        self._begins_K = np.cumsum(self._sizes_K) - self._sizes_K
        self._block = lru_cache(NUM_BLOCKS)(self._make_block)

    @property
    def num_sequences(self) -> int:
        """Number of sequences, N."""
        return len(self._lengths_N)

    def num_units(self, unit_size: int) -> int:
        """Return the units per epoch; `TrainingError` if there is not even one."""
        if unit_size > self.num_sequences:
            raise TrainingError(
                f"there are {self.num_sequences:,} sequences, but one micro-batch of all devices needs {unit_size:,}. "
                f"Pass a smaller batch_size, or more documents."
            )
        return self.num_sequences // unit_size

    def unit(self, place: int, unit_size: int) -> Unit:
        """Return the unit at `place` of the endless sequence."""
        epoch, number = divmod(place, self.num_units(unit_size))
        block, i = divmod(number, BLOCK_UNITS)
        return self._block(epoch, block, unit_size)[i]

    def epoch_slots(self, epoch: int, unit_size: int) -> tuple[int, int]:
        """Return (tokens without padding, slots with padding) of an epoch."""
        num_units = self.num_units(unit_size)
        kept_K = self._kept_K(epoch, unit_size)
        # A unit has the width of the bucket in which it ends.
        num_ended_K = np.cumsum(kept_K) // unit_size
        slots = int((np.diff(num_ended_K, prepend=0) * self._bounds_K).sum()) * unit_size
        assert num_ended_K[-1] == num_units
        left_out = [
            self._members(bucket, np.arange(kept, size), epoch)
            for bucket, (kept, size) in enumerate(zip(kept_K.tolist(), self._sizes_K.tolist(), strict=True))
        ]
        num_left_out = self._lengths_N[np.concatenate(left_out)].sum()
        return int(self._lengths_N.sum() - num_left_out), slots

    def validation_units(self, wanted: int, unit_size: int) -> list[tuple[NDArray[np.int64], int]]:
        """Return (sequences_U, width) of units with `wanted` sequences, spread evenly over all.

        The result does not depend on the seed. Sequences are sorted by bucket and keep their order within a bucket. The
        last unit is padded with -1.
        """
        chosen = np.arange(wanted, dtype=np.int64) * self.num_sequences // wanted
        widths = self._bounds_K[np.searchsorted(self._bounds_K, self._lengths_N[chosen])]
        by_width = np.argsort(widths, kind="stable")
        units = []
        for begin in range(0, wanted, unit_size):
            rows = by_width[begin : begin + unit_size]
            sequences_U = np.full(unit_size, -1, np.int64)
            sequences_U[: len(rows)] = chosen[rows]
            units.append((sequences_U, int(widths[rows[-1]])))
        return units

    # From places to sequences

    def _make_block(self, epoch: int, block: int, unit_size: int) -> list[Unit]:
        num_units = self.num_units(unit_size)
        places_P = np.arange(block * BLOCK_UNITS, min((block + 1) * BLOCK_UNITS, num_units))
        units_P = self._shuffled(places_P, num_units, epoch, stream=len(self._bounds_K))
        items_PU = units_P[:, None] * unit_size + np.arange(unit_size)
        kept_K = self._kept_K(epoch, unit_size)
        buckets_PU = np.searchsorted(np.cumsum(kept_K), items_PU, side="right")
        positions_PU = items_PU - (np.cumsum(kept_K) - kept_K)[buckets_PU]
        sequences_PU = np.empty_like(items_PU)
        for bucket in np.unique(buckets_PU).tolist():
            here_PU = buckets_PU == bucket
            sequences_PU[here_PU] = self._members(bucket, positions_PU[here_PU], epoch)
        widths_P = self._bounds_K[buckets_PU[:, -1]]  # buckets only grow within a unit
        num_tokens_P = self._lengths_N[sequences_PU].sum(1)
        sequences_PU.flags.writeable = False
        return list(map(Unit, sequences_PU, widths_P.tolist(), num_tokens_P.tolist()))

    def _members(self, bucket: int, positions: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Return the sequences at `positions` of the shuffled bucket."""
        shuffled = self._shuffled(positions, int(self._sizes_K[bucket]), epoch, stream=bucket)
        members: NDArray[np.int64] = self._by_bucket_N[self._begins_K[bucket] + shuffled]
        return members

    def _kept_K(self, epoch: int, unit_size: int) -> NDArray[np.int64]:
        """Return how many sequences of each bucket are in the epoch. The shuffle of the bucket decides which ones.

        The omitted sequences are drawn among all sequences, so each is omitted equally often, independent of its
        length.
        """
        num_left_out = self.num_sequences % unit_size
        places = np.arange(self.num_sequences - num_left_out, self.num_sequences)
        drawn = self._shuffled(places, self.num_sequences, epoch, stream=len(self._bounds_K) + 1)
        buckets = np.searchsorted(self._begins_K, drawn, side="right") - 1  # skips empty buckets
        return self._sizes_K - np.bincount(buckets, minlength=len(self._sizes_K))

    def _shuffled(self, places: NDArray[np.int64], size: int, epoch: int, *, stream: int) -> NDArray[np.int64]:
        """Shuffle with one permutation per stream: one for each bucket, one for units, one for omissions."""
        if not len(places):
            return places
        return permuted(places, size, seed=self._seed, epoch=epoch * (len(self._bounds_K) + 2) + stream)
