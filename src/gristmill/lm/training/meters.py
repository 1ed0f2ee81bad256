"""Meters: tokens per second, share of the device's peak (MFU), padding, time the device waits for data, memory.

MFU is computed twice: against the peak on the data sheet (`device_peak`), and against a large matrix product measured
on this very device at the start of the run (`measured_matmul_flops`), which is what a perfect program could reach here.
A CPU has neither. Only `Meter.read` waits for the device, once in `log_interval` steps.
"""

from __future__ import annotations

import contextlib
import math
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

# Dense matrix products in bf16 or fp16, FLOP per second, by a part of the device's name; the first that fits counts.
DEVICE_PEAKS = {
    "B200": 2250e12,
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
    "T4": 65e12,
    "MI300X": 1307e12,
    "MI250X": 383e12,
}
FP32_SHARE = 0.5  # TF32 runs at half the rate of bf16 on all of these
# No program is faster than the device. A greater share means that the yardstick is wrong, so it is not shown; a little
# more than 1 is the noise of two measurements.
MAX_SHARE = 1.05


def device_peak(name: str, precision: str = "bf16-mixed") -> float | None:
    """The peak of a device on its data sheet, FLOP per second; None for one that is not in the table (a CPU, for one).

    >>> device_peak("NVIDIA H200") / 1e12, device_peak("AMD EPYC")
    (989.0, None)
    """
    for part, peak in DEVICE_PEAKS.items():
        if part.lower() in name.lower():
            return peak * (FP32_SHARE if precision.startswith("32") else 1.0)
    return None


def device_name(device: torch.device) -> str:
    """What the device calls itself."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return {"cpu": "CPU", "mps": "Apple GPU"}.get(device.type, device.type)


def measured_matmul_flops(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.2) -> float | None:
    """The FLOP per second of a square matrix product on this device: the best of those that fit into `seconds`.

    None for a CPU, and where memory is short. A CPU shares its cores: beside three other busy processes the product
    ran at a thirtieth of its speed, and a run that had the cores to itself later would seem to reach 339 % of it.
    """
    if device.type == "cpu":
        return None
    try:
        return _best_matmul_flops(device, dtype, 8192 if device.type == "cuda" else 2048, seconds)
    except torch.OutOfMemoryError:
        return None
    finally:
        if device.type == "cuda":  # the matrices are no part of the memory of the run
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)


def _best_matmul_flops(device: torch.device, dtype: torch.dtype, size: int, seconds: float) -> float:
    # Of random numbers, as those of a model are: ones and zeros take less power, and a GPU at its limit runs faster.
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    torch.mm(a, b)  # the first one also loads the library
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        synchronize(device)
        begin = time.perf_counter()
        torch.mm(a, b)
        synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return 2.0 * size**3 / best


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def memory_bytes(device: torch.device) -> int | None:
    """The most memory the run has held: of the device, or of the process where that is the device."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resident_bytes()


def free_bytes() -> int | None:
    """The memory that this machine, or the container around this process, has left; None where that is not known."""
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
    """What the steps since the last reading were like."""

    loss: float  # mean over the steps
    stats: dict[str, float]  # what else the model reports for a step, likewise
    grad_norm: float  # mean over the steps that have a finite one: a step of 16-mixed may have none, and is skipped
    grad_norm_max: float
    first_bad_step: int | None  # the first whose loss or gradient norm is not a number
    tokens_per_second: float  # without padding
    padding: float  # share of what was computed on that is no token
    mfu: float | None  # padding is work for nothing: it counts as none
    mfu_matmul: float | None
    data_wait: float  # share of the time in which the device had nothing to do for lack of a batch
    seconds: float  # since the run began, those before a resume among them
    bad_value: str = ""  # what was not a number: "the loss of" or "the gradient norm of" the first bad step
    any_failed: bool = False  # whether any rank has passed `has_failed=True` to `Meter.read`


Pending: TypeAlias = dict[str, list[float | None]]


def first_bad_step(
    steps: Sequence[float | None], losses: Sequence[float | None], norms: Sequence[float | None]
) -> tuple[int | None, str]:
    """The first step whose loss or gradient norm is not a number, and which of them; (None, "") if there is none.

    A norm of inf, or None, is no error: precision 16-mixed has skipped that step (see weight_updates.py).
    """
    for step, loss, norm in zip(steps, losses, norms, strict=True):
        assert step is not None
        if loss is None or not math.isfinite(loss):
            return int(step), "the loss of"
        if norm is not None and math.isnan(norm):
            return int(step), "the gradient norm of"
    return None, ""


class Meter:
    """Collects losses on the device and times on the host, and turns them into a `Reading` when asked."""

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
        self._reduce = reduce  # the mean over ranks
        self._peaks = [None if peak is None else peak * num_devices for peak in (peak, matmul_flops)]
        self._began = time.perf_counter() - seconds_before
        self.restart()

    def restart(self) -> None:
        """Begin to take time here: what lies before (a validation, a checkpoint) is no part of a step."""
        self._restarted = time.perf_counter()
        self._wait.restart()
        self._num_tokens, self._num_slots = 0, 0

    def waiting_for_data(self) -> contextlib.AbstractContextManager[None]:
        """A block in which the host waits for data; what the device has to do meanwhile is no waiting."""
        return self._wait.waiting()

    def add(self, step: int, losses: Tensor, grad_norm: Tensor, num_tokens: int, num_slots: int) -> None:
        """Note a step: loss and stats, and its tokens without and with padding.

        The values stay on the device: the host does not wait for them.
        """
        index = len(self._steps)
        self._values[:-1, index].copy_(losses, non_blocking=True)
        self._values[-1, index].copy_(grad_norm, non_blocking=True)
        self._steps.append(step)
        self._num_tokens += num_tokens
        self._num_slots += num_slots

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._began

    @property
    def has_pending(self) -> bool:
        """Whether there are steps that were not read yet."""
        return bool(self._steps)

    def pending(self) -> Pending:
        """The losses and gradient norms that were not read yet: what a checkpoint between two readings must keep.

        JSON has neither inf nor NaN: None stands for them. As a norm it is inf, that of a step that was skipped; a norm
        that is NaN stays, for such a step is no good and must not be saved.
        """
        *rows, norms = self._host_values()
        kept = [[value if math.isfinite(value) else None for value in row] for row in rows]
        kept.append([None if math.isinf(norm) else norm for norm in norms])
        return {"steps": list(self._steps), **dict(zip(self._names, kept, strict=True))}

    def _host_values(self, *further: float) -> list[list[float]]:
        """A row per name, with a value per step, and one for each of the `further` numbers: the means over ranks."""
        values = self._values[:, : len(self._steps)].clone()
        rows_of_further = [torch.full_like(values[:1], number) for number in further]
        values = torch.cat([values, *rows_of_further])
        rows: list[list[float]] = (values if self._reduce is None else self._reduce(values)).tolist()
        return rows

    def restore(self, pending: Pending) -> None:
        """Take up what `pending` gave."""
        self._steps = [int(step) for step in pending["steps"] if step is not None]
        # The interval of readings may be another one now, and these steps then come on top of a whole one.
        self._values = torch.cat(
            [self._values, torch.zeros_like(self._values[:, :1]).expand(-1, len(self._steps))], dim=1
        )
        for row, name in enumerate(self._names):
            missing = math.inf if name == "grad_norms" else math.nan
            values = [missing if value is None else value for value in pending[name]]
            self._values[row, : len(self._steps)] = torch.tensor(values, dtype=self._values.dtype)

    def read(self, *, has_failed: bool = False) -> Reading:
        """Wait for the device, and return the reading of the steps since the last one.

        has_failed: something of this rank that all ranks should learn of; it travels with the losses.
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
    """The share of the peak that is used; None where there is no peak, or one that cannot be right."""
    share = None if peak is None else flops / peak
    return None if share is None or share > MAX_SHARE else share
