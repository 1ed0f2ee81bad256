"""The device that a trained model is used on."""

from __future__ import annotations

import torch

from gristmill.errors import OptionError

__all__ = ["find_device"]


def find_device(device: str | torch.device) -> torch.device:
    """The device of that name; "auto" is CUDA, else the GPU of a Mac, else the CPU. `OptionError` where it is not here.

    >>> find_device("cpu")
    device(type='cpu')
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    name = next(kind for kind in there if there[kind]) if device == "auto" else str(device)
    kind, _, number = name.partition(":")
    if kind not in there or not (number.isdecimal() or name == kind):
        raise OptionError(f"device={name!r} is not known. Pass 'auto', 'cpu', 'cuda' or 'mps'.")
    if not there[kind] or (kind == "cuda" and int(number or 0) >= torch.cuda.device_count()):
        raise OptionError(f"device={name!r}: torch finds none here. Pass device='cpu'.")
    return torch.device(name)
