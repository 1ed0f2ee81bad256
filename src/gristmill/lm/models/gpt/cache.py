"""The cache of a GPT that writes text: the keys and values of the tokens so far, which no step computes again.

Shapes: L layers, B sequences, S tokens that are attended to, T new ones, H heads of keys and values of K numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Cache", "LayerCache", "LayerRowCache", "RowCache", "activation_dtype"]


@dataclass
class Cache:
    """The keys and values of the tokens so far, with room for a whole context: a step writes its own, copies none."""

    keys_LBHSK: Tensor
    values_LBHSK: Tensor
    length: int = 0  # the tokens it holds

    @property
    def capacity(self) -> int:
        """The tokens it has room for."""
        return self.keys_LBHSK.shape[3]

    def layer(self, index: int) -> LayerCache:
        """The part of one layer."""
        return LayerCache(self.keys_LBHSK[index], self.values_LBHSK[index], self.length)


@dataclass(frozen=True)
class LayerCache:
    """The keys and values of one layer."""

    keys_BHSK: Tensor
    values_BHSK: Tensor
    length: int

    def append(self, k_BHTK: Tensor, v_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Store these, and return all: those of earlier tokens and these."""
        end = self.length + k_BHTK.shape[2]
        self.keys_BHSK[:, :, self.length : end] = k_BHTK
        self.values_BHSK[:, :, self.length : end] = v_BHTK
        return self.keys_BHSK[:, :, :end], self.values_BHSK[:, :, :end]


@dataclass
class RowCache:
    """A cache whose rows are at positions of their own, which a tensor on the device holds: shapes never change."""

    keys_LBHSK: Tensor
    values_LBHSK: Tensor
    positions_B: Tensor  # where the next token of each row goes

    def layer(self, index: int) -> LayerRowCache:
        """The part of one layer."""
        return LayerRowCache(self.keys_LBHSK[index], self.values_LBHSK[index], self.positions_B[:, None, None, None])


@dataclass(frozen=True)
class LayerRowCache:
    """The keys and values of one layer of a `RowCache`."""

    keys_BHSK: Tensor
    values_BHSK: Tensor
    positions_B111: Tensor

    def append(self, k_BH1K: Tensor, v_BH1K: Tensor) -> tuple[Tensor, Tensor]:
        """Store one token of each row, and return the whole rows: a mask hides what is after their positions."""
        places_BH1K = self.positions_B111.expand_as(k_BH1K)
        self.keys_BHSK.scatter_(2, places_BH1K, k_BH1K)
        self.values_BHSK.scatter_(2, places_BH1K, v_BH1K)
        return self.keys_BHSK, self.values_BHSK


def activation_dtype(weight: Tensor) -> torch.dtype:
    """The type of what comes out of a product with `weight`, under autocast or not: that of a cache."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
