"""Meters: tokens per second, model FLOPs utilization (MFU), padding, time spent waiting for data, memory.

MFU is computed twice: relative to the data-sheet peak (`device_peak`), and relative to a large matrix product measured
on the device at the start of the run (`measured_matmul_flops`), which is the upper limit for any program on it. Neither
exists for a CPU. Only `Meter.read` waits for the device, once every `log_interval` steps.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from gristmill.lm.training.data_wait import DataWait, DeviceWait, HostWait, mark_on
from gristmill.progress import resident_bytes

__all__ = [
    "Meter",
    "Pending",
    "Reading",
    "device_peak",
    "first_bad_step",
    "free_bytes",
    "measured_matmul_flops",
    "memory_bytes",
]

# Peak of dense bf16 or fp16 matrix products in FLOP per second, by whole words of the device name: an RTX A1000 is no
# A100. The first match counts.
DEVICE_PEAKS = {
    "B200": 2250e12,
    "GB200": 2500e12,
    "H200": 989e12,
    "GH200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H800": 989e12,
    "H20": 148e12,
    "A100": 312e12,
    "A800": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "A40": 150e12,
    "A10G": 70e12,
    "A10": 125e12,
    "A30": 165e12,
    "A6000": 155e12,
    "RTX 6000 Ada": 364e12,
    "RTX 5090": 210e12,
    "RTX 4090": 165e12,
    "RTX 4080": 97e12,
    "RTX 3090": 71e12,
    "RTX 3080": 60e12,
    "V100": 125e12,
    "V100S": 130e12,
    "T4": 65e12,
    "MI300X": 1307e12,
    "MI250X": 383e12,
}
FP32_SHARE = 0.5  # TF32 runs at half the rate of bf16 on all of these
FLOAT8_SHARE = 2.0  # 8-bit floats run at twice the rate of bf16 on all of these that have them
# An MFU above 1 means that the reference peak is wrong, so it is not shown. Slightly more than 1 is measurement noise.
MAX_SHARE = 1.05


def device_peak(name: str, precision: str = "bf16-mixed") -> float | None:
    """Return the data-sheet peak of a device in FLOP per second; None if it is not in the table, such as a CPU.

    precision: that of the run, or "float8" for a run with products in 8-bit floats, even if only some of them are.

    >>> device_peak("NVIDIA H200") / 1e12, device_peak("NVIDIA H200", "float8") / 1e12, device_peak("AMD EPYC")
    (989.0, 1978.0, None)
    """
    share = {"32": FP32_SHARE, "float8": FLOAT8_SHARE}.get(precision, 1.0)
    return next((peak * share for words, peak in DEVICE_PEAKS.items() if _has_words(words, name)), None)


def _has_words(words: str, name: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(words)}(?![a-z0-9])", name, re.IGNORECASE) is not None


def device_name(device: torch.device) -> str:
    """Return the name of the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return {"cpu": "CPU", "mps": "Apple GPU"}.get(device.type, device.type)


def measured_matmul_flops(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.2) -> float | None:
    """Return the FLOP per second of a square matrix product on this device: the best within `seconds`.

    None for a CPU, or if memory is short. A CPU shares its cores: next to three other busy processes, the product ran
    at 1/30 of its speed, and a run that later had the cores to itself would have shown an MFU of 339 %.
    """
    if device.type == "cpu":
        return None
    try:
        return _best_matmul_flops(device, dtype, 8192 if device.type == "cuda" else 2048, seconds)
    except torch.OutOfMemoryError:
        return None
    finally:
        if device.type == "cuda":  # the matrices do not count as memory of the run
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)


def _best_matmul_flops(device: torch.device, dtype: torch.dtype, size: int, seconds: float) -> float:
    # Random numbers, as in a model: ones and zeros need less power, so a GPU at its power limit would run faster.
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    one = torch.ones(1, device=device)

    def multiply() -> None:
        if dtype == torch.float8_e4m3fn:
            torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)
        else:
            torch.mm(a, b)

    multiply()  # the first product also loads the library
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        synchronize(device)
        begin = time.perf_counter()
        multiply()
        synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return 2.0 * size**3 / best


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def memory_bytes(device: torch.device) -> int | None:
    """Return the peak memory on a GPU, otherwise the resident memory of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resident_bytes()


def free_bytes() -> int | None:
    """Return the free memory of this machine or container; None if unknown."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / f"memory.{name}").read_text(encoding="ascii") for name in ("max", "current"))
        found.append(int(limit) - int(used))
    return min(found, default=None)


@dataclass(frozen=True, slots=True)
class Reading:
    """Measurements of the steps since the last reading."""

    loss: float  # mean over the steps
    stats: dict[str, float]  # other statistics of the model, as means over the steps
    grad_norm: float  # mean over the steps with a finite norm; a skipped step of 16-mixed has none
    grad_norm_max: float
    first_bad_step: int | None  # the first step with a loss or gradient norm that is NaN or infinite
    tokens_per_second: float  # without padding
    padding: float  # fraction of the computed positions that are padding
    mfu: float | None  # padding does not count as useful work
    mfu_matmul: float | None
    data_wait: float  # fraction of the time in which the device was idle, waiting for a batch
    seconds: float  # since the run began, including the time before it was resumed
    bad_value: str = ""  # "the loss of" or "the gradient norm of", for the first bad step
    any_failed: bool = False  # whether any rank has passed `has_failed=True` to `Meter.read`


Pending: TypeAlias = dict[str, list[float | None]]


def first_bad_step(
    steps: Sequence[float | None], losses: Sequence[float | None], norms: Sequence[float | None]
) -> tuple[int | None, str]:
    """Return (the first step with a bad loss or gradient norm, which of the two), or (None, "").

    A loss that is NaN or infinite is bad, and a norm that is NaN. A norm of inf or None is not an error: precision
    16-mixed has skipped that step (see weight_updates.py).
    """
    for step, loss, norm in zip(steps, losses, norms, strict=True):
        assert step is not None
        if loss is None or not math.isfinite(loss):
            return int(step), "the loss of"
        if norm is not None and math.isnan(norm):
            return int(step), "the gradient norm of"
    return None, ""


class Meter:
    """Collects losses on the device and times on the host, and returns them as a `Reading`."""

    def __init__(
        self,
        device: torch.device,
        *,
        capacity: int,
        flops_per_token: float,
        stats: Sequence[str] = (),
        num_devices: int = 1,
        peak: float | None = None,
        matmul_flops: float | None = None,
        seconds_before: float = 0.0,
        reduce: Callable[[Tensor], Tensor] | None = None,
        wait: DataWait | None = None,
    ) -> None:
        self._wait = wait or (DeviceWait(mark_on(device)) if device.type == "cuda" else HostWait())
        self._names = ("losses", *stats, "grad_norms")
        self._values = torch.zeros(len(self._names), capacity, device=device)
        self._steps: list[int] = []
        self._flops_per_token = flops_per_token
        self._reduce = reduce  # computes the mean over ranks
        self._peaks = [None if peak is None else peak * num_devices for peak in (peak, matmul_flops)]
        self._began = time.perf_counter() - seconds_before
        self.restart()

    def restart(self) -> None:
        """Restart the timer. Time before this, such as a validation or a checkpoint, does not count."""
        self._restarted = time.perf_counter()
        self._wait.restart()
        self._num_tokens, self._num_slots = 0, 0

    def waiting_for_data(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the host waits for data. Time in which the device has work does not count."""
        return self._wait.waiting()

    def add(self, step: int, losses: Tensor, grad_norm: Tensor, num_tokens: int, num_slots: int) -> None:
        """Add the loss and stats of a step, and its number of tokens without and with padding.

        The values stay on the device, so the host does not wait for them.
        """
        index = len(self._steps)
        self._values[:-1, index].copy_(losses, non_blocking=True)
        self._values[-1, index].copy_(grad_norm, non_blocking=True)
        self._steps.append(step)
        self._num_tokens += num_tokens
        self._num_slots += num_slots

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._began

    @property
    def has_pending(self) -> bool:
        """Whether there are steps that have not been read yet."""
        return bool(self._steps)

    def pending(self) -> Pending:
        """Return the losses and gradient norms that have not been read yet, for a checkpoint between two readings.

        JSON has neither inf nor NaN, so a loss that is inf or NaN becomes None, and a norm of inf (a skipped step)
        becomes None. A norm that is NaN is kept: such a step is bad and must not be saved.
        """
        *rows, norms = self._host_values()
        kept = [[value if math.isfinite(value) else None for value in row] for row in rows]
        kept.append([None if math.isinf(norm) else norm for norm in norms])
        return {"steps": list(self._steps), **dict(zip(self._names, kept, strict=True))}

    def _host_values(self, *further: float) -> list[list[float]]:
        """Return one row per name and per number in `further`, with one value per step: the means over ranks."""
        values = self._values[:, : len(self._steps)].clone()
        rows_of_further = [torch.full_like(values[:1], number) for number in further]
        values = torch.cat([values, *rows_of_further])
        rows: list[list[float]] = (values if self._reduce is None else self._reduce(values)).tolist()
        return rows

    def restore(self, pending: Pending) -> None:
        """Restore the result of `pending`."""
        self._steps = [int(step) for step in pending["steps"] if step is not None]
        # log_interval may have changed, so a whole interval may be added to these steps before the next reading.
        self._values = torch.cat(
            [self._values, torch.zeros_like(self._values[:, :1]).expand(-1, len(self._steps))], dim=1
        )
        for row, name in enumerate(self._names):
            missing = math.inf if name == "grad_norms" else math.nan
            values = [missing if value is None else value for value in pending[name]]
            self._values[row, : len(self._steps)] = torch.tensor(values, dtype=self._values.dtype)

    def read(self, *, has_failed: bool = False) -> Reading:
        """Wait for the device, and return the reading of the steps since the last one.

        has_failed: a failure of this rank, which is sent to all ranks together with the losses.
        """
        losses, *stats, norms, failures = self._host_values(float(has_failed))
        elapsed = max(time.perf_counter() - self._restarted, 1e-9)
        rate = self._num_tokens / elapsed
        bad_step, bad_value = first_bad_step(self._steps, losses, norms)
        mfu, mfu_matmul = (_share(rate * self._flops_per_token, peak) for peak in self._peaks)
        finite_norms = [norm for norm in norms if math.isfinite(norm)]
        reading = Reading(
            loss=math.fsum(losses) / len(losses) if bad_step is None else math.nan,
            stats={name: math.fsum(row) / len(row) for name, row in zip(self._names[1:-1], stats, strict=True)},
            grad_norm=math.fsum(finite_norms) / len(finite_norms) if finite_norms else math.nan,
            grad_norm_max=max(norms, key=lambda norm: math.inf if math.isnan(norm) else norm),
            first_bad_step=bad_step,
            bad_value=bad_value,
            any_failed=any(failures),
            tokens_per_second=rate,
            padding=1 - self._num_tokens / self._num_slots if self._num_slots else 0.0,
            mfu=mfu,
            mfu_matmul=mfu_matmul,
            data_wait=min(self._wait.seconds() / elapsed, 1.0),
            seconds=self.seconds,
        )
        self._steps = []
        self.restart()
        return reading


def _share(flops: float, peak: float | None) -> float | None:
    """Return the used fraction of the peak; None without a peak, or if the peak must be wrong."""
    share = None if peak is None else flops / peak
    return None if share is None or share > MAX_SHARE else share
