"""Arrival: figures on their way from the device to the host, for which nobody waits."""

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
    """The figures of a step: nine numbers, and the KL of each dimension, in the order of `metrics` below."""

    step: int
    num_samples: int
    host: Tensor
    event: Any  # of the device, after the copy; None where there is nothing to wait for

    @classmethod
    def sent(cls, packed: Tensor, step: int, num_samples: int, spare: list[Tensor]) -> Arrival:
        """Have them copied; `spare` is memory to copy them to."""
        if packed.device.type != "cuda":
            host = packed.to("cpu", non_blocking=packed.device.type == "mps")
            return cls(step, num_samples, host, _mps_event() if packed.device.type == "mps" else None)
        fitting = [host for host in spare if host.shape == packed.shape]
        # Page-locked memory is slow to get, and is used again.
        host = fitting[0] if fitting else torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
        spare.clear()
        spare.extend(fitting[1:])
        host.copy_(packed, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(packed.device))
        return cls(step, num_samples, host, event)

    @property
    def is_page_locked(self) -> bool:
        """Whether the memory of the host is worth keeping."""
        return self.event is not None and self.host.is_pinned()

    @property
    def is_there(self) -> bool:
        """Whether reading them would not wait."""
        return self.event is None or bool(self.event.query())

    def metrics(self) -> PosteriorMetrics:
        """The figures, without alarms."""
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
