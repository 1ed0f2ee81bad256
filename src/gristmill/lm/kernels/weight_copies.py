"""The copies of weights that products read: in bfloat16, and in 8-bit floats.

Weights are float32. Their copies in bfloat16 are made once per step, not in every forward pass: several micro-batches
of a step share them, and AdamW's kernel writes them with the weights (adamw.py). Copies in 8-bit floats are made from
those in every forward pass, and its backward pass uses them too.

A copy is valid until its weight changes. Most changes count up the version of a tensor, but changes through `.data` do
not, and some optimizers use it. Therefore all copies are made again after a step, except those that were written.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gristmill.lm.kernels.float8 import Site, quantized

__all__ = ["WeightCopies"]


class WeightCopies:
    """Copies of the weights of a model."""

    def __init__(self, weights: Iterable[Tensor], *, dtype: torch.dtype = torch.bfloat16) -> None:
        """Nothing is allocated before the first use, because the weights may still be moved to a device."""
        self._dtype = dtype
        self._copies: dict[int, Tensor] = {}
        self._versions: dict[int, int] = {}  # of the weights that have a valid copy
        self._written: set[int] = set()
        self._small: dict[int, tuple[Tensor, Tensor]] = {}
        self.follow(weights)

    def follow(self, weights: Iterable[Tensor]) -> None:
        """Keep copies of these weights from now on, and drop those of all others."""
        self._weights = list(weights)
        self._keys = {id(weight) for weight in self._weights}
        for kept in (self._copies, self._versions, self._small):
            for key in kept.keys() - self._keys:
                del kept[key]
        self._written &= self._keys

    def __getitem__(self, weight: Tensor) -> Tensor:
        """The bfloat16 copy of a weight. `refresh` must have been called before."""
        return self._copies[id(weight)]

    def has(self, weight: Tensor) -> bool:
        """Return whether there is a copy of this weight."""
        return id(weight) in self._keys

    def float8(self, weight: Tensor, site: Site) -> tuple[Tensor, Tensor]:
        """Return a weight and its transpose in 8-bit floats."""
        key = id(weight)
        if key not in self._small:
            rows, columns = quantized(self[weight], site, columns=True)
            assert rows is not None and columns is not None
            self._small[key] = rows, columns
        return self._small[key]

    @torch.no_grad()
    def refresh(self, *, all: bool = False) -> None:
        """Make the copies of all weights that have changed; with `all`, those of all weights, for one use."""
        stale = [weight for weight in self._weights if all or self._versions.get(id(weight)) != weight._version]
        if not stale:
            return
        torch._foreach_copy_([self.buffer(weight) for weight in stale], [weight.detach() for weight in stale])
        # subtle: who needs all copies may exchange weights through `.data`, now and back again, so none stays valid.
        self._versions = {} if all else self._versions | {id(weight): weight._version for weight in stale}

    def buffer(self, weight: Tensor) -> Tensor:
        """Return the memory of a copy, to write it."""
        key = id(weight)
        if key not in self._copies or self._copies[key].device != weight.device:
            self._copies[key] = torch.empty(weight.shape, device=weight.device, dtype=self._dtype)
            self._versions.pop(key, None)
        return self._copies[key]

    def note_written(self, weights: Iterable[Tensor]) -> None:
        """Note that the optimizer has just written the copies of these weights."""
        for weight in weights:
            self._versions[id(weight)] = weight._version
            self._written.add(id(weight))
            self._small.pop(id(weight), None)

    def forget(self) -> None:
        """After a step: all copies are invalid, except those written by the optimizer."""
        self._versions = {key: version for key, version in self._versions.items() if key in self._written}
        self._written.clear()

    def forget_float8(self) -> None:
        """Convert weights to 8-bit floats again when they are needed next.

        Every forward pass begins with this, so a CUDA graph contains the conversions that it needs.
        """
        self._small.clear()
