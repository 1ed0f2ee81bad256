"""Batches from the numbers of their windows: read from memory maps, or gathered on the device where the tokens lie.

Shapes: N tokens in all, W windows, B of them in a batch, T inputs each, S = T + 1 tokens each, D documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gristmill.errors import TrainingError
from gristmill.lm.data.batch import Batch
from gristmill.lm.data.document_ids import document_ids, document_ids_on_device
from gristmill.lm.data.token_source import TokenSource, WindowReader

__all__ = ["DeviceTokens", "MappedTokens"]

# How unsigned ids are stored in tensors: torch gathers signed numbers on every device, and the bits are the same.
# Ids of 32 bits never reach the sign: a vocabulary has at most 2^31 tokens.
_STORED = {"uint8": "uint8", "uint16": "int16", "uint32": "int32", "int32": "int32", "int64": "int64"}


class MappedTokens:
    """Batches in main memory, from tokens that stay in their files."""

    def __init__(
        self, tokens: TokenSource, *, context_length: int, changes_D: NDArray[np.int64] | None, pin_memory: bool
    ) -> None:
        """`changes_D`: where documents begin, for batches with document ids; `pin_memory`: batches lie in such."""
        self._reader = WindowReader(tokens, context_length + 1)
        self._context_length = context_length
        self._changes_D = changes_D
        self._pin_memory = pin_memory

    def batch(self, windows_B: NDArray[np.int64]) -> Batch:
        """The windows with these numbers."""
        starts_B = windows_B * self._context_length
        windows_BS = self._reader.read(starts_B)
        # By numpy, not torch: a thread that calls into torch's pool gets a pool of its own beside that of the model.
        batch = Batch(
            torch.from_numpy(windows_BS[:, :-1].astype(np.int64, order="C")),
            torch.from_numpy(windows_BS[:, 1:].astype(np.int64, order="C")),
            self._document_ids(starts_B),
        )
        return batch.pin_memory() if self._pin_memory else batch

    def _document_ids(self, starts_B: NDArray[np.int64]) -> Tensor | None:
        if self._changes_D is None:
            return None
        return torch.from_numpy(document_ids(self._changes_D, starts_B, self._context_length))


class DeviceTokens:
    """Batches on a device, from tokens that were all copied there once: a step then needs only the window numbers."""

    def __init__(
        self,
        tokens: TokenSource,
        *,
        context_length: int,
        changes_D: NDArray[np.int64] | None,
        device: torch.device,
    ) -> None:
        """Copies the tokens; `TrainingError` where they do not fit."""
        tokens_N = _copied(tokens, device)
        self._num_bits = 8 * tokens.dtype.itemsize
        self._context_length = context_length
        num_windows = (len(tokens_N) - 1) // context_length
        # Window w has tokens w T to w T + T as inputs and those one further on as targets: rows of two plain tables.
        self._inputs_WT = tokens_N[: num_windows * context_length].view(num_windows, context_length)
        self._targets_WT = tokens_N[1 : num_windows * context_length + 1].view(num_windows, context_length)
        self._changes_D = None if changes_D is None else torch.from_numpy(changes_D).to(device)
        self._device = device

    def batch(self, windows_B: NDArray[np.int64]) -> Batch:
        """The windows with these numbers."""
        on_host_B = torch.from_numpy(windows_B)
        if self._device.type == "cuda":  # from other memory the copy would wait for all work that the device has
            on_host_B = on_host_B.pin_memory()
        on_device_B = on_host_B.to(self._device, non_blocking=self._device.type == "cuda")
        return Batch(
            self._gathered(self._inputs_WT, on_device_B),
            self._gathered(self._targets_WT, on_device_B),
            self._document_ids(on_device_B),
        )

    def _gathered(self, table_WT: Tensor, windows_B: Tensor) -> Tensor:
        ids_BT = table_WT.index_select(0, windows_B).to(torch.int64)
        return ids_BT.bitwise_and_(0xFFFF) if self._num_bits == 16 else ids_BT

    def _document_ids(self, windows_B: Tensor) -> Tensor | None:
        if self._changes_D is None:
            return None
        return document_ids_on_device(self._changes_D, windows_B * self._context_length, self._context_length)


def _copied(tokens: TokenSource, device: torch.device) -> Tensor:
    """tokens_N on the device, their bits as `_STORED` says; one file at a time, so main memory need not hold them."""
    stored = np.dtype(_STORED[tokens.dtype.name])
    num_tokens = tokens.begins[-1]
    try:
        tokens_N = torch.empty(num_tokens, dtype=_torch_dtype(stored), device=device)
    except torch.OutOfMemoryError as error:
        raise TrainingError(
            f"{num_tokens * stored.itemsize:,} bytes of tokens do not fit on {device}. "
            f"Pass keep_on_device=False, and they are read from their files as they are needed."
        ) from error
    for begin, end in zip(tokens.begins, tokens.begins[1:], strict=False):
        if begin < end:
            part: NDArray[Any] = tokens.stretch(begin, end).view(stored)
            # A copy, since torch warns of memory that may not be written to, as that of a map.
            tokens_N[begin:end] = torch.from_numpy(part.copy())
    return tokens_N


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
