"""Batch: the token sequences of one micro-batch, as every model of Gristmill takes them.

Shapes: B sequences, T tokens (or vectors of E numbers) each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["IGNORED", "Batch"]

# The target that no loss counts: the value that torch's cross-entropy ignores by default.
IGNORED = -100


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and what should follow each of them: `targets_BT[b, t]` is the token after `inputs_BT[b, t]`.

    All tensors are int64, contiguous and of one shape. A target of -100 is left out of the loss. `document_ids_BT`
    numbers the documents of a sequence: a token sees only earlier tokens with its own number. None: it sees them all.

    A batch of whole sequences, one per document, has the same tokens as inputs and as targets (0 and -100 on padding):
    its model reads them and gives them back. Where sequences are of vectors, `vectors_BTE` has them, inputs are 0, and
    targets only mark what is no padding.
    """

    inputs_BT: Tensor
    targets_BT: Tensor
    document_ids_BT: Tensor | None = None
    vectors_BTE: Tensor | None = None

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
        return self._changed(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """The same batch in page-locked memory, from which a device copies without waiting."""
        return self._changed(lambda tensor: tensor.pin_memory())

    def _changed(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: dict[str, Any] = {name: None if x is None else change(x) for name, x in vars(self).items()}
        return Batch(**changed)
