"""Where kernels run: on the GPU of a tensor, or in Triton's interpreter."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from gristmill.lm.kernels import embedding

__all__ = ["is_interpreted", "on_device_of"]


def is_interpreted() -> bool:
    """Return whether kernels run in Triton's interpreter, on the CPU (TRITON_INTERPRET=1 when they were imported)."""
    from triton import JITFunction

    return not isinstance(embedding._add, JITFunction)


def on_device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which the device of a tensor is the current one. Triton launches kernels there."""
    context: AbstractContextManager[Any] = torch.cuda.device_of(tensor)
    return context
