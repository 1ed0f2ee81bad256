"""batch_size="auto": the largest micro-batch that fits, found by measuring, with the global batch kept as it was asked.

Memory grows evenly with the sequences of a micro-batch, so two small steps show how many fit; that many are then tried.
The trial has the whole model on each device, also where the run divides it (strategy="fsdp"): what this saves the run
is then added to the memory that a step may take. A model that does not fit as a whole cannot be tried.
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

__all__ = ["divisors", "find_batch_size", "held_bytes", "largest_that_fits"]

# What is left to fragments, libraries and the other buffers of a step.
USABLE_SHARE = 0.9
# On a CPU memory is not what limits a step, caches are: more tokens at once are not faster.
CPU_TOKENS = 8192
TRIAL_COPIES = 2  # weights and gradients
RUN_COPIES = 4  # weights, gradients and two moments, each as large as the weights


def find_batch_size(
    model: Model,
    *,
    per_device: int,
    sequence_length: int,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
    num_parts: int = 1,
) -> int:
    """The largest divisor of `per_device`, the sequences of a step on this device, that fits into its memory.

    num_parts: devices that weights, gradients and moments are divided among.
    """
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
        usable = _usable_bytes(model, device, num_parts)
        is_divided = num_parts > 1
        return largest_that_fits(
            sizes, lambda size: _peak_bytes(step, size, model, device), usable, is_divided=is_divided
        )
    finally:
        torch.cuda.reset_peak_memory_stats(device)  # the run reports its own peak, not that of a trial


def divisors(number: int) -> list[int]:
    """All of them, the smallest first.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [size for size in range(1, number + 1) if number % size == 0]


def largest_that_fits(
    sizes: list[int], peak_bytes: Callable[[int], int | None], usable_bytes: int, *, is_divided: bool = False
) -> int:
    """The largest of `sizes` whose peak is at most `usable_bytes`, by few trials; `peak_bytes` is None for too large.

    is_divided: the run divides the model among devices, which the trials do not.

    >>> largest_that_fits([1, 2, 4, 8, 16, 32], lambda size: 100 + 10 * size, 200)
    8
    """
    small, next_size = sizes[0], sizes[1] if len(sizes) > 1 else sizes[0]
    base, more = peak_bytes(small), peak_bytes(next_size)
    if base is None or base > usable_bytes:
        raise TrainingError(_nothing_fits(is_divided))
    if more is None:
        return small
    slope = max((more - base) / max(next_size - small, 1), 1.0)
    likely = [size for size in sizes if base + slope * (size - small) <= usable_bytes]
    for size in reversed(likely):
        peak = peak_bytes(size)
        if peak is not None and peak <= usable_bytes:
            return size
    return small


def _nothing_fits(is_divided: bool) -> str:
    if is_divided:
        return (
            "batch_size='auto' found no size that fits: it tries one sequence with the whole model on one device, and "
            "strategy='fsdp' divides it only afterwards. Pass a number as batch_size, such as batch_size=1, or a "
            "shorter context_length or max_sequence_length."
        )
    return (
        "not even one sequence fits into the memory of the device. Pass a shorter context_length or "
        "max_sequence_length, a smaller model, precision='bf16-mixed', or strategy='fsdp' on several devices with a "
        "number as batch_size."
    )


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


def _usable_bytes(model: nn.Module, device: torch.device, num_parts: int) -> int:
    """What a step of a trial may take: less or more than the memory there is, by what a step of the run has besides."""
    free, _ = torch.cuda.mem_get_info(device)
    usable = int(USABLE_SHARE * (free + torch.cuda.memory_allocated(device)))
    return usable + TRIAL_COPIES * num_bytes(model) - held_bytes(model, num_parts)


def held_bytes(model: nn.Module, num_parts: int) -> int:
    """What weights, gradients and moments take on each device of a run that divides them among `num_parts` devices.

    A divided model is put together where it is used: two layers at a time, and all that is outside of layers.
    """
    held = RUN_COPIES * num_bytes(model)
    if num_parts == 1:
        return held
    units: tuple[str, ...] = getattr(model, "SHARDED_UNITS", ())
    layers = [num_bytes(layer) for name in units for layer in getattr(model, name, ())]
    together = num_bytes(model) - sum(layers) + 2 * max(layers, default=0)
    return held // num_parts + TRIAL_COPIES * together


def num_bytes(module: nn.Module) -> int:
    """The size of its weights."""
    return sum(parameter.nbytes for parameter in module.parameters())
