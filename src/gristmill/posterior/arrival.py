"""Arrival: metrics in transit from the device to the host, without blocking."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gristmill.posterior.metrics import PosteriorMetrics, known

__all__ = ["Arrival"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """The metrics of a step: ten numbers, and the KL of each dimension, in the order of `metrics` below."""

    step: int
    num_samples: int
    host: Tensor
    event: Any  # recorded on the device after the copy; None if there is nothing to wait for

    @classmethod
    def sent(cls, packed: Tensor, step: int, num_samples: int, spare: list[Tensor]) -> Arrival:
        """Start copying `packed` to the host; `spare` has buffers to reuse."""
        if packed.device.type != "cuda":
            host = packed.to("cpu", non_blocking=packed.device.type == "mps")
            return cls(step, num_samples, host, _mps_event() if packed.device.type == "mps" else None)
        fitting = [host for host in spare if host.shape == packed.shape]
        # Page-locked memory is slow to allocate, so it is reused.
        host = fitting[0] if fitting else torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
        spare.clear()
        spare.extend(fitting[1:])
        host.copy_(packed, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(packed.device))
        return cls(step, num_samples, host, event)

    @property
    def is_page_locked(self) -> bool:
        """Whether the host buffer is worth keeping."""
        return self.event is not None and self.host.is_pinned()

    @property
    def is_there(self) -> bool:
        """Whether the metrics have arrived, so that reading them does not block."""
        return self.event is None or bool(self.event.query())

    def metrics(self) -> PosteriorMetrics:
        """Return the metrics, without alarms."""
        if self.event is not None:
            self.event.synchronize()
        figures = map(known, self.host.tolist())
        kl, information, floor, units, strict, share, weight, shuffled, error, prior, *kl_Z = figures
        return PosteriorMetrics(
            step=self.step,
            num_samples=self.num_samples,
            kl=kl,
            kl_per_dimension=tuple(kl_Z),
            active_units=None if units is None else int(units),
            active_units_strict=None if strict is None else int(strict),
            mutual_information=information,
            mutual_information_limit=math.log(self.num_samples),
            aggregated_kl=None if kl is None or information is None else kl - information,
            aggregated_kl_floor=floor,
            kl_share=share,
            kl_weight=weight,
            gap_shuffled=shuffled,
            gap_shuffled_error=error,
            gap_prior=prior,
        )


def _mps_event() -> Any:
    event = torch.mps.event.Event()
    event.record()
    return event
