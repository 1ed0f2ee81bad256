"""Batches from the numbers of their sequences: read and padded in this process.

Shapes: B sequences in a batch, T slots for tokens (or vectors of E numbers) in each.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gristmill.lm.batch import IGNORED, Batch
from gristmill.lm.sequences.source import SequenceSource

__all__ = ["padded_batch"]


def padded_batch(source: SequenceSource, sequences_B: NDArray[np.int64], width: int) -> Batch:
    """These sequences, each padded to `width`, in main memory. A row of number -1 is padding and nothing else."""
    shape = (len(sequences_B), width)
    # By numpy, not torch: a thread that calls into torch's pool gets a pool of its own beside that of the model.
    inputs_BT = np.zeros(shape, np.int64)
    targets_BT = np.full(shape, IGNORED, np.int64)
    is_vectors = source.embedding_dim is not None
    vectors_BTE = np.zeros((*shape, source.embedding_dim), np.float32) if is_vectors else None
    for row, index in enumerate(sequences_B.tolist()):
        if index < 0:
            continue
        sequence = source.read(index)
        if vectors_BTE is None:
            inputs_BT[row, : len(sequence)] = sequence
            targets_BT[row, : len(sequence)] = sequence
        else:
            vectors_BTE[row, : len(sequence)] = sequence
            targets_BT[row, : len(sequence)] = 0
    return Batch(
        torch.from_numpy(inputs_BT),
        torch.from_numpy(targets_BT),
        vectors_BTE=None if vectors_BTE is None else torch.from_numpy(vectors_BTE),
    )
