"""Interruption of a model that computes a text in one call, such as one that decodes latents."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

__all__ = ["Interrupted", "interruptible"]


class Interrupted(Exception):
    """The computation was interrupted."""


@contextlib.contextmanager
def interruptible(model: nn.Module, is_interrupted: Callable[[], bool]) -> Iterator[None]:
    """Raise `Interrupted` in the block at the next layer of `model` that runs after `is_interrupted()` is true.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(1, 1))
    >>> with contextlib.suppress(Interrupted), interruptible(model, lambda: True):
    ...     print(model(torch.zeros(1)))
    """

    def check(*_: Any) -> None:
        if is_interrupted():
            raise Interrupted

    handles = [module.register_forward_pre_hook(check) for module in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
