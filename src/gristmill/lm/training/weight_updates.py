"""Weight updates: gradients are clipped, checked and applied, and one that is not finite never reaches a weight.

On a CPU the check is a comparison, and the run stops at that step. On a GPU the host would have to wait for the device
in every step, so the answer stays there: optimizers that know `found_inf` (the fused ones of torch, and Muon) leave
weights and state as they are where it is 1. A latch on the device then keeps all later steps from changing anything,
until the host reads the gradient norms and stops the run. Any other optimizer gets a check that waits.

The norm that `WeightUpdates.update` returns shows what happened in the step:

    a finite number   the weights were changed
    inf               precision 16-mixed skipped the step and uses a smaller loss scale from here on; no error
    NaN               the weights were left alone, and will be in all later steps: the run must stop
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gristmill.lm.training.muon import Muon
from gristmill.lm.training.muon_sharing import local
from gristmill.lm.training.optimizers import Optimizers

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["WeightUpdates", "are_finite"]

# A loss scale below 1 makes float16 gradients smaller than they are, and still they overflow.
LEAST_SCALE = 1.0
MOST_SKIPPED_STEPS = 100


class WeightUpdates:
    """The last part of a step: from accumulated gradients to new weights."""

    def __init__(
        self,
        fabric: Fabric,
        optimizers: Optimizers,
        model: nn.Module,
        *,
        clip_norm: float,
        waits: bool | None = None,
    ) -> None:
        """clip_norm: the greatest norm of all gradients together; 0 for no limit.

        waits: let the host check every step; None: where that costs nothing, or an optimizer knows no `found_inf`.
        """
        self._optimizers, self._parameters = optimizers, list(model.parameters())
        self._clip_norm = clip_norm or math.inf
        self._scaler: torch.amp.GradScaler | None = getattr(fabric.strategy.precision, "scaler", None)
        must_wait = not all(map(_can_skip, optimizers.torch_optimizers))
        self._waits = (fabric.device.type != "cuda" or must_wait) if waits is None else waits
        # 0 or 1, and a count: numbers on the device, so that the host does not wait for them.
        self._failed, self._num_skipped = (torch.zeros((), device=fabric.device) for _ in range(2))
        self._one = torch.ones((), device=fabric.device)
        self.has_failed = False  # whether the host knows already that the run must stop

    def update(self) -> Tensor:
        """Clip the gradients by their norm over all parameters, change the weights, and return the norm."""
        if self._scaler is not None:
            for optimizer in self._optimizers.torch_optimizers:
                self._scaler.unscale_(optimizer)
        norm = _whole(nn.utils.clip_grad_norm_(self._parameters, self._clip_norm))
        is_bad = (~torch.isfinite(norm)).float()
        self._step(skip=torch.maximum(self._failed, is_bad))
        self._optimizers.zero_grad()
        self._failed = torch.maximum(self._failed, is_bad * self._is_hopeless(is_bad))
        if self._waits:
            self.has_failed = bool(self._failed)
        return torch.where(self._failed > 0, math.nan, torch.where(is_bad > 0, math.inf, norm))

    def _step(self, skip: Tensor) -> None:
        """Let the optimizers step unless `skip`, a 0 or 1 on the device, is 1."""
        if self._waits:
            if not skip:
                self._optimizers.step()
            return
        for optimizer in self._optimizers.torch_optimizers:
            optimizer.found_inf = skip  # type: ignore[attr-defined]
            try:
                optimizer.step()
            finally:
                del optimizer.found_inf  # type: ignore[attr-defined]

    def _is_hopeless(self, is_bad: Tensor) -> Tensor:
        """1 where gradients that are not finite are an error. With a loss scale, a few such steps are its search."""
        if self._scaler is None:
            return self._one
        self._scaler.update()
        self._num_skipped = (self._num_skipped + 1) * is_bad
        scale = self._scaler.scale(self._one)
        return ((scale < LEAST_SCALE) | (self._num_skipped >= MOST_SKIPPED_STEPS)).float()


def _can_skip(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer heeds `found_inf`. The attribute is torch's, for optimizers that a GradScaler need not."""
    return isinstance(optimizer, Muon) or bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def are_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all numbers in the tensors are finite, on all devices where they are divided. Waits for the device."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    here = [local(tensor.detach()) for tensor in floats]
    here = [tensor for tensor in here if tensor.numel()]  # of a weight with few rows, some devices have none
    norm = nn.utils.get_total_norm(here, math.inf) if here else torch.zeros(())
    mesh = next((tensor.device_mesh for tensor in floats if hasattr(tensor, "device_mesh")), None)
    if mesh is None:
        return math.isfinite(float(norm))
    is_bad = (~torch.isfinite(norm)).float().to(mesh.device_type)
    for dimension in range(mesh.ndim):
        torch.distributed.all_reduce(is_bad, torch.distributed.ReduceOp.MAX, group=mesh.get_group(dimension))
    return not bool(is_bad)


def _whole(norm: Tensor) -> Tensor:
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
