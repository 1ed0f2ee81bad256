"""Batch: the token sequences of one micro-batch, as every model of Gristmill takes them.

Shapes: B sequences of T tokens (or of T vectors of E numbers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["IGNORED", "Batch"]

# A target that no loss counts: torch's cross-entropy ignores this value by default.
IGNORED = -100


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and targets: `targets_BT[b, t]` is the token after `inputs_BT[b, t]`.

    All id tensors are int64, contiguous and of one shape.

    A batch of whole sequences, one per document, has the same tokens as inputs and as targets (0 and -100 on padding),
    because its model reads and reconstructs them. For sequences of vectors, `vectors_BTE` holds the vectors, the inputs
    are 0, and the targets only mark the positions that are not padding.

    Examples:
        >>> tokens_BT = torch.tensor([[5, 6, 7, 8]])
        >>> batch = Batch(tokens_BT[:, :-1], tokens_BT[:, 1:])
        >>> batch.num_tokens, batch.to("cpu").num_targets.item()
        (3, 3)
    """

    inputs_BT: Tensor
    """Token ids that the model reads."""
    targets_BT: Tensor
    """Token ids to predict. The loss ignores targets of -100."""
    document_ids_BT: Tensor | None = None
    """Number of the document that each token belongs to; a token attends only to earlier tokens with the same number.
    None: to all earlier tokens."""
    vectors_BTE: Tensor | None = None
    """Vectors that the model reads instead of tokens. None: tokens."""

    @property
    def num_tokens(self) -> int:
        """Number of inputs, B * T, including those whose targets are ignored."""
        return self.inputs_BT.numel()

    @property
    def num_targets(self) -> Tensor:
        """Number of targets that count, as a tensor on the device, so that reading it does not wait."""
        return (self.targets_BT != IGNORED).sum()

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return the same batch on `device`.

        Args:
            device: Device to copy to.
            non_blocking: Return before the copy is complete. Needs a batch in page-locked memory.

        Raises:
            RuntimeError: There is no such device.
        """
        return self._changed(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Return the same batch in page-locked memory, from which a device copies asynchronously.

        Examples:
            ```python
            batch = batch.pin_memory().to("cuda", non_blocking=True)
            ```
        """
        return self._changed(lambda tensor: tensor.pin_memory())

    def _changed(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: dict[str, Any] = {name: None if x is None else change(x) for name, x in vars(self).items()}
        return Batch(**changed)
