"""Choice of the device for a trained model."""

from __future__ import annotations

import torch

from gristmill.errors import OptionError

__all__ = ["find_device"]


def find_device(device: str | torch.device) -> torch.device:
    """Return the device. "auto" is CUDA, else MPS, else the CPU. Raise `OptionError` if it is not available.

    >>> find_device("cpu")
    device(type='cpu')
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    name = next(kind for kind in there if there[kind]) if device == "auto" else str(device)
    kind, _, number = name.partition(":")
    if kind not in there or not (number.isdecimal() or name == kind):
        raise OptionError(f"device={name!r} is not valid. Pass 'auto', 'cpu', 'cuda' or 'mps'.")
    if not there[kind] or (kind == "cuda" and int(number or 0) >= torch.cuda.device_count()):
        raise OptionError(f"device={name!r} is not available to torch on this machine. Pass device='cpu'.")
    return torch.device(name)
