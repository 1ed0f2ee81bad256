"""Cache of a GPT for text generation: the keys and values of earlier tokens, so that no step computes them again.

Shapes: L layers, B sequences, S attended tokens, T new ones, H key and value heads of size K.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Cache", "LayerCache", "LayerRowCache", "RowCache", "activation_dtype"]


@dataclass
class Cache:
    """Keys and values of the tokens so far, preallocated for a whole context.

    A step writes its own without copying others.
    """

    keys_LBHSK: Tensor
    values_LBHSK: Tensor
    length: int = 0  # number of cached tokens

    @property
    def capacity(self) -> int:
        """Maximum number of tokens."""
        return self.keys_LBHSK.shape[3]

    def layer(self, index: int) -> LayerCache:
        """Return the part of one layer."""
        return LayerCache(self.keys_LBHSK[index], self.values_LBHSK[index], self.length)


@dataclass(frozen=True)
class LayerCache:
    """Keys and values of one layer."""

    keys_BHSK: Tensor
    values_BHSK: Tensor
    length: int

    def append(self, k_BHTK: Tensor, v_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Store these, and return those of all tokens so far."""
        end = self.length + k_BHTK.shape[2]
        self.keys_BHSK[:, :, self.length : end] = k_BHTK
        self.values_BHSK[:, :, self.length : end] = v_BHTK
        return self.keys_BHSK[:, :, :end], self.values_BHSK[:, :, :end]


@dataclass
class RowCache:
    """A cache whose rows have separate positions, stored in a tensor on the device, so that shapes never change."""

    keys_LBHSK: Tensor
    values_LBHSK: Tensor
    positions_B: Tensor  # position of the next token of each row

    def layer(self, index: int) -> LayerRowCache:
        """Return the part of one layer."""
        return LayerRowCache(self.keys_LBHSK[index], self.values_LBHSK[index], self.positions_B[:, None, None, None])


@dataclass(frozen=True)
class LayerRowCache:
    """Keys and values of one layer of a `RowCache`."""

    keys_BHSK: Tensor
    values_BHSK: Tensor
    positions_B111: Tensor

    def append(self, k_BH1K: Tensor, v_BH1K: Tensor) -> tuple[Tensor, Tensor]:
        """Store one token per row, and return the whole rows. A mask hides what is after their positions."""
        places_BH1K = self.positions_B111.expand_as(k_BH1K)
        self.keys_BHSK.scatter_(2, places_BH1K, k_BH1K)
        self.values_BHSK.scatter_(2, places_BH1K, v_BH1K)
        return self.keys_BHSK, self.values_BHSK


def activation_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype of a product with `weight`, with or without autocast. Caches use this dtype."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
