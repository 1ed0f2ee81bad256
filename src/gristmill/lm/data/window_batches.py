"""Batches from the start positions of their windows: read from files, or gathered from tokens on the device.

Shapes: N tokens in all, B windows per batch, T inputs and S = T + 1 tokens per window, D documents.
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
from gristmill.lm.data.token_source import TokenSource, check_ids

__all__ = ["DeviceTokens", "HostTokens"]

# Dtypes in which ids are stored in tensors: torch gathers signed integers on every device, and the bits are the same.
# 32-bit ids never use the sign bit, because a vocabulary has at most 2^31 tokens.
_STORED = {"uint8": "uint8", "uint16": "int16", "uint32": "int32", "int32": "int32", "int64": "int64"}


class HostTokens:
    """Batches in main memory, from tokens that stay in their files."""

    def __init__(
        self,
        tokens: TokenSource,
        *,
        context_length: int,
        changes_D: NDArray[np.int64] | None,
        vocab_size: int | None,
        pin_memory: bool,
    ) -> None:
        """Store the arguments.

        changes_D: positions where documents start, to add document ids to batches; None: no document ids.
        vocab_size: a window with an id that is not below it raises `TrainingError`.
        pin_memory: put batches in page-locked memory.
        """
        self._tokens = tokens
        self._context_length = context_length
        self._vocab_size = vocab_size
        self._changes_D = changes_D
        self._pin_memory = pin_memory

    def windows(self, starts_B: NDArray[np.int64]) -> NDArray[Any]:
        """Return windows_BS, the T + 1 tokens from each of `starts_B`; possibly read-only."""
        length = self._context_length + 1
        windows_BS = self._tokens.windows(starts_B, length)
        check_ids(windows_BS, self._vocab_size, lambda i: self._tokens.place(int(starts_B[i // length]) + i % length))
        return windows_BS

    def batch(self, starts_B: NDArray[np.int64]) -> Batch:
        """Return the windows that start at these tokens."""
        windows_BS = self.windows(starts_B)
        # Convert with numpy, not torch: a thread that uses torch gets a second thread pool besides that of the model.
        batch = Batch(
            torch.from_numpy(windows_BS[:, :-1].astype(np.int64, order="C")),
            torch.from_numpy(windows_BS[:, 1:].astype(np.int64, order="C")),
            self.document_ids(starts_B),
        )
        return batch.pin_memory() if self._pin_memory else batch

    def document_ids(self, starts_B: NDArray[np.int64]) -> Tensor | None:
        """Return ids_BT, the number of each token's document within its window; None without document ids."""
        if self._changes_D is None:
            return None
        return torch.from_numpy(document_ids(self._changes_D, starts_B, self._context_length))


class DeviceTokens:
    """Batches on a device, from tokens that were copied there once. A step transfers only the starts of windows."""

    def __init__(
        self,
        tokens: TokenSource,
        *,
        context_length: int,
        changes_D: NDArray[np.int64] | None,
        vocab_size: int | None,
        device: torch.device,
    ) -> None:
        """Copy the tokens; `TrainingError` if they do not fit, or if an id is not below `vocab_size`."""
        tokens_N = _copied(tokens, vocab_size, device)
        self._num_bits = 8 * tokens.dtype.itemsize
        self._context_length = context_length
        # Two views with one row per possible start. Views use no extra memory.
        self._inputs_NT = tokens_N[:-1].unfold(0, context_length, 1)
        self._targets_NT = tokens_N[1:].unfold(0, context_length, 1)
        self._changes_D = None if changes_D is None else torch.from_numpy(changes_D).to(device)
        self._device = device

    def batch(self, starts_B: NDArray[np.int64]) -> Batch:
        """Return the windows that start at these tokens."""
        on_host_B = torch.from_numpy(starts_B)
        if self._device.type == "cuda":  # a copy from pageable memory waits for all queued work
            on_host_B = on_host_B.pin_memory()
        on_device_B = on_host_B.to(self._device, non_blocking=self._device.type == "cuda")
        return Batch(
            self._gathered(self._inputs_NT, on_device_B),
            self._gathered(self._targets_NT, on_device_B),
            self._document_ids(on_device_B),
        )

    def _gathered(self, table_NT: Tensor, starts_B: Tensor) -> Tensor:
        ids_BT = table_NT.index_select(0, starts_B).to(torch.int64)
        return ids_BT.bitwise_and_(0xFFFF) if self._num_bits == 16 else ids_BT

    def _document_ids(self, starts_B: Tensor) -> Tensor | None:
        if self._changes_D is None:
            return None
        return document_ids_on_device(self._changes_D, starts_B, self._context_length)


def _copied(tokens: TokenSource, vocab_size: int | None, device: torch.device) -> Tensor:
    """Return tokens_N on the device, stored as in `_STORED`. Copies file by file, to limit main memory."""
    stored = np.dtype(_STORED[tokens.dtype.name])
    num_tokens = tokens.begins[-1]
    try:
        tokens_N = torch.empty(num_tokens, dtype=_torch_dtype(stored), device=device)
    except torch.OutOfMemoryError as error:
        raise TrainingError(
            f"{num_tokens * stored.itemsize:,} bytes of tokens do not fit on {device}. "
            f"Pass keep_on_device=False to read them from their files as needed."
        ) from error
    for begin, end in zip(tokens.begins, tokens.begins[1:], strict=False):
        if begin < end:
            ids: NDArray[Any] = tokens.stretch(begin, end)
            check_ids(ids, vocab_size, lambda i, begin=begin: tokens.place(begin + i))  # type: ignore[misc]
            # A copy, because torch warns about read-only memory.
            tokens_N[begin:end] = torch.from_numpy(ids.view(stored).copy())
    return tokens_N


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
