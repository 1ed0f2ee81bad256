"""batch_size="auto": the largest micro-batch that fits, found by measuring, with the global batch kept as it was asked.

Memory grows evenly with the sequences of a micro-batch, so two small steps show how many fit; that many are then tried.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import nn

from gristmill.errors import TrainingError
from gristmill.lm.models.model import Model
from gristmill.lm.training.advice import is_out_of_memory
from gristmill.lm.training.losses import LossModule

__all__ = ["divisors", "find_batch_size", "largest_that_fits"]

# What is left to fragments, libraries and the other buffers of a step.
USABLE_SHARE = 0.9
# On a CPU memory is not what limits a step, caches are: more tokens at once are not faster.
CPU_TOKENS = 8192
ADAM_COPIES = 3  # gradients and two moments, each as large as the weights


def find_batch_size(
    model: Model,
    *,
    per_device: int,
    sequence_length: int,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
) -> int:
    """The largest divisor of `per_device`, the sequences of a step on this device, that fits into its memory."""
    sizes = divisors(per_device)
    if device.type != "cuda":
        return max([size for size in sizes if size * sequence_length <= CPU_TOKENS], default=1)
    module = LossModule(model)

    def step(size: int) -> None:
        batch = model.random_batch(size, sequence_length, device)
        with autocast():
            loss, _ = module(dict(vars(batch)), {})
        loss.backward()

    try:
        usable = _usable_bytes(model, device)
        return largest_that_fits(sizes, lambda size: _peak_bytes(step, size, model, device), usable)
    finally:
        torch.cuda.reset_peak_memory_stats(device)  # the run reports its own peak, not that of a trial


def divisors(number: int) -> list[int]:
    """All of them, the smallest first.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [size for size in range(1, number + 1) if number % size == 0]


def largest_that_fits(sizes: list[int], peak_bytes: Callable[[int], int | None], usable_bytes: int) -> int:
    """The largest of `sizes` whose peak is at most `usable_bytes`, by few trials; `peak_bytes` is None for too large.

    >>> largest_that_fits([1, 2, 4, 8, 16, 32], lambda size: 100 + 10 * size, 200)
    8
    """
    small, next_size = sizes[0], sizes[1] if len(sizes) > 1 else sizes[0]
    base, more = peak_bytes(small), peak_bytes(next_size)
    if base is None or base > usable_bytes:
        raise TrainingError(
            "not even one sequence fits into the memory of the device. Pass a shorter context_length or "
            "max_sequence_length, a smaller model, "
            "precision='bf16-mixed', or strategy='fsdp' on several devices."
        )
    if more is None:
        return small
    slope = max((more - base) / max(next_size - small, 1), 1.0)
    likely = [size for size in sizes if base + slope * (size - small) <= usable_bytes]
    for size in reversed(likely):
        peak = peak_bytes(size)
        if peak is not None and peak <= usable_bytes:
            return size
    return small


def _peak_bytes(step: Callable[[int], None], size: int, model: nn.Module, device: torch.device) -> int | None:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    try:
        step(size)
        return torch.cuda.max_memory_allocated(device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()


def _usable_bytes(model: nn.Module, device: torch.device) -> int:
    """What a step may take: gradients and moments, which a trial lacks or a step adds, are set aside."""
    free, _ = torch.cuda.mem_get_info(device)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    return int(USABLE_SHARE * (free + torch.cuda.memory_allocated(device))) - (ADAM_COPIES - 1) * weights
