"""Batch: the token sequences of one micro-batch, as every model of Gristmill takes them.

Shapes: B sequences, T tokens each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["IGNORED", "Batch"]

# The target that no loss counts: the value torch's cross-entropy ignores unless told otherwise.
IGNORED = -100


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and what should follow each of them: `targets_BT[b, t]` is the token after `inputs_BT[b, t]`.

    All tensors are int64, contiguous and of one shape. A target of -100 is left out of the loss. `document_ids_BT`
    numbers the documents of a sequence: a token sees only earlier tokens with its own number. None: it sees them all.
    """

    inputs_BT: Tensor
    targets_BT: Tensor
    document_ids_BT: Tensor | None = None

    @property
    def num_tokens(self) -> int:
        """The number of inputs, B * T, whether their targets count or not."""
        return self.inputs_BT.numel()

    @property
    def num_targets(self) -> Tensor:
        """The number of targets that count, as a tensor on the device: nothing waits for it."""
        return (self.targets_BT != IGNORED).sum()

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same batch on `device`."""
        ids_BT = self.document_ids_BT
        return Batch(
            self.inputs_BT.to(device, non_blocking=non_blocking),
            self.targets_BT.to(device, non_blocking=non_blocking),
            None if ids_BT is None else ids_BT.to(device, non_blocking=non_blocking),
        )

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory, from which a device copies without waiting."""
        ids_BT = self.document_ids_BT
        return Batch(
            self.inputs_BT.pin_memory(),
            self.targets_BT.pin_memory(),
            None if ids_BT is None else ids_BT.pin_memory(),
        )
