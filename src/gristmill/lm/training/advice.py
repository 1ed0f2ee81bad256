"""Advice: problems of a run and the options that help, most helpful first.

Each function checks for one problem, and `advice` calls them all. To add one, write a function and list it in
`CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from gristmill.arguments import usable_cores
from gristmill.lm.data.options import DocumentOptions
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.meters import Reading

__all__ = ["NOT_FINITE", "Situation", "advice", "is_out_of_memory", "out_of_memory"]

DATA_WAIT_LIMIT = 0.05
IDLE_LIMIT = 0.10
PADDING_LIMIT = 0.20


@dataclass(frozen=True)
class Situation:
    """Input of the checks."""

    reading: Reading
    device: torch.device
    config: TrainConfig
    num_workers: int | None = None  # processes that prepare batches; None if a thread does
    uses_kernels: bool = False  # Triton kernels, which ignore compile_model


def advice(situation: Situation) -> dict[str, str]:
    """Return messages about problems with the speed of the run, by the name of the problem."""
    found = {name: look(situation) for name, look in CHECKS.items()}
    return {name: message for name, message in found.items() if message is not None}


def slow_data(situation: Situation) -> str | None:
    """Return advice if the model waits for batches."""
    reading, config, num_workers = situation.reading, situation.config, situation.num_workers
    if reading.data_wait <= DATA_WAIT_LIMIT:
        return None
    problem = f"{reading.data_wait:.0%} of the time is spent waiting for data."
    is_unpinned = situation.device.type == "cuda" and not getattr(config.model, "pin_memory", True)
    pinned = "pin_memory=True" if is_unpinned else None
    if num_workers is None:
        fewer = "document_mask=False" if getattr(config.model, "document_mask", False) else None
        shards = "the shards on a local disk"
        return f"{problem} {_in_order([shards, pinned, 'a larger batch_size', fewer])}"
    num_cores = usable_cores()
    more_workers = f"num_workers={num_cores}" if num_workers < num_cores else None
    further_ahead = f"prefetch_factor={2 * getattr(config.model, 'prefetch_factor', 1)}"
    encoded = "token shards (made with encode_corpus()) instead of Parquet files"
    return f"{problem} {_in_order([more_workers, pinned, further_ahead, encoded])}"


def idle_device(situation: Situation) -> str | None:
    """Return advice if a GPU receives its data in time but is poorly used."""
    reading, device, config = situation.reading, situation.device, situation.config
    if device.type != "cuda" or reading.data_wait > DATA_WAIT_LIMIT:
        return None
    if reading.mfu_matmul is None or reading.mfu_matmul >= IDLE_LIMIT:
        return None
    flags = [
        "a larger batch_size (or 'auto'), with fewer gradient_accumulation_steps",
        None if config.compile_model or situation.uses_kernels else "compile_model=True",
        None if config.precision != "32" else "precision='bf16-mixed'",
        _dynamic_padding(reading, config),
    ]
    return (
        f"the device reaches only {reading.mfu_matmul:.0%} of the speed of a plain matrix product. {_in_order(flags)}"
    )


def much_padding(situation: Situation) -> str | None:
    """Return advice if a large part of the computation is on padding."""
    reading, config = situation.reading, situation.config
    if reading.padding <= PADDING_LIMIT or (flag := _dynamic_padding(reading, config)) is None:
        return None
    return f"{reading.padding:.0%} of the computed positions are padding. {_in_order([flag])}"


CHECKS: Mapping[str, Callable[[Situation], str | None]] = {
    "slow data": slow_data,
    "idle device": idle_device,
    "much padding": much_padding,
}


def _dynamic_padding(reading: Reading, config: TrainConfig) -> str | None:
    if not isinstance(config.model, DocumentOptions) or reading.padding <= PADDING_LIMIT:
        return None
    return (
        f"num_buckets={2 * config.model.num_buckets}"
        if config.model.use_dynamic_padding
        else "use_dynamic_padding=True"
    )


def _in_order(flags: list[str | None]) -> str:
    """Return the flags as a sentence, most helpful first."""
    there = [flag for flag in flags if flag is not None]
    return f"Try{', in this order' if len(there) > 1 else ''}: {', '.join(there)}."


def out_of_memory(config: TrainConfig) -> str:
    """Return the message for a device that has run out of memory."""
    length = config.model.LENGTH
    flags = [
        f"batch_size='auto', global_batch_size={config.global_batch_size} (the largest that fits, same global batch)"
        if config.global_batch_size
        else "batch_size='auto' (the largest that fits)",
        "a smaller batch_size with a larger gradient_accumulation_steps",
        "precision='bf16-mixed'" if config.precision == "32" else None,
        None if config.activation_checkpointing else "activation_checkpointing=True (layers are computed twice)",
        f"a shorter {length}",
        *(f"preset={name!r}" for name in config.model.PRESETS if name.endswith("low-memory")),
        "strategy='fsdp' on several devices",
    ]
    return (
        f"the device ran out of memory at batch_size={config.batch_size}, {length}={config.model.sequence_length}. "
        f"{_in_order(flags)}"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the device or the machine is out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # Gristmill's errors about lost processes avoid these words, so that their own advice is not replaced.
    messages = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(words in str(error) for words in messages)


NOT_FINITE = (
    "{what} step {step} is NaN or infinite. The run is stopped. {kept} Try, in this order: a lower "
    "learning_rate, more warmup_steps, clip_norm=1, {precision}another seed."
)
