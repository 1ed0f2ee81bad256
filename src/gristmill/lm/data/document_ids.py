"""The document that each token of a window belongs to.

Shapes: B windows of T tokens, D documents.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["changes_of_document", "document_ids", "document_ids_on_device"]


def changes_of_document(ends_D: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions where another document starts.

    These are the ends of documents, without the duplicates of empty documents.
    """
    changes: NDArray[np.int64] = ends_D[np.diff(ends_D, prepend=0) > 0]
    return changes


def document_ids(changes_D: NDArray[np.int64], starts_B: NDArray[np.int64], window_length: int) -> NDArray[np.int64]:
    """Return ids_BT: 0 for the document at the start of a window, 1 for the next one, and so on.

    >>> document_ids(np.array([2, 5, 9]), np.array([0, 4]), 4)
    array([[0, 0, 1, 1],
           [0, 1, 1, 1]])
    """
    first_B = np.searchsorted(changes_D, starts_B, side="right")
    counts_B = np.searchsorted(changes_D, starts_B + window_length, side="left") - first_B
    # One entry per change of document in any window: its row, and its index in changes_D, which gives the column.
    rows = np.repeat(np.arange(len(starts_B)), counts_B)
    numbers = np.arange(len(rows)) + np.repeat(first_B - np.cumsum(counts_B) + counts_B, counts_B)
    begins_here_BT = np.zeros((len(starts_B), window_length), np.int64)
    begins_here_BT[rows, changes_D[numbers] - starts_B[rows]] = 1
    return np.cumsum(begins_here_BT, axis=1, out=begins_here_BT)


def document_ids_on_device(changes_D: Tensor, starts_B: Tensor, window_length: int) -> Tensor:
    """The same for tensors on a device, without synchronization."""
    positions_BT = starts_B[:, None] + torch.arange(window_length, device=starts_B.device)
    numbers_BT = torch.searchsorted(changes_D, positions_BT, right=True)
    return numbers_BT - numbers_BT[:, :1]
