"""batch_size="auto": measure the largest micro-batch that fits in memory. The global batch does not change.

Memory grows linearly with the size of a micro-batch, so two small steps predict the largest size, which is then tried.
A trial has the whole model on each device, even if the run shards it (strategy="fsdp"). The memory that sharding saves
is added to the limit of a trial. A model that does not fit on one device cannot be tried.
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

# Fraction of memory to use. The rest is for fragmentation, libraries and the other buffers of a step.
USABLE_SHARE = 0.9
# On a CPU, caches limit the speed of a step, not memory: more tokens per micro-batch are not faster.
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
    """Return the largest divisor of `per_device`, the sequences per step on this device, that fits in memory.

    num_parts: number of devices that weights, gradients and moments are sharded over.
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
        torch.cuda.reset_peak_memory_stats(device)  # the run must not report the peak of a trial


def divisors(number: int) -> list[int]:
    """Return all divisors in ascending order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [size for size in range(1, number + 1) if number % size == 0]


def largest_that_fits(
    sizes: list[int], peak_bytes: Callable[[int], int | None], usable_bytes: int, *, is_divided: bool = False
) -> int:
    """Return the largest of `sizes` with a peak of at most `usable_bytes`, with few calls of `peak_bytes`.

    peak_bytes: returns the peak memory for a size, or None if it runs out of memory.
    is_divided: whether the run shards the model, which the trials do not.

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
            "batch_size='auto' found no size that fits in memory: it tries one sequence with the whole model on one "
            "device, before strategy='fsdp' shards the model. Pass a number, such as batch_size=1, or a shorter "
            "context_length or max_sequence_length."
        )
    return (
        "a single sequence does not fit in the memory of the device. Pass a shorter context_length or "
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
    """Return the memory limit of a trial step: usable memory, corrected for the difference between trial and run."""
    free, _ = torch.cuda.mem_get_info(device)
    usable = int(USABLE_SHARE * (free + torch.cuda.memory_allocated(device)))
    return usable + TRIAL_COPIES * num_bytes(model) - held_bytes(model, num_parts)


def held_bytes(model: nn.Module, num_parts: int) -> int:
    """Return the memory of weights, gradients and moments per device, sharded over `num_parts` devices.

    A sharded model is gathered where it is used: two layers at a time, and everything outside of layers.
    """
    held = RUN_COPIES * num_bytes(model)
    if num_parts == 1:
        return held
    units: tuple[str, ...] = getattr(model, "SHARDED_UNITS", ())
    layers = [num_bytes(layer) for name in units for layer in getattr(model, name, ())]
    together = num_bytes(model) - sum(layers) + 2 * max(layers, default=0)
    return held // num_parts + TRIAL_COPIES * together


def num_bytes(module: nn.Module) -> int:
    """Return the size of the weights of a module."""
    return sum(parameter.nbytes for parameter in module.parameters())
