"""Weight updates: clip, check and apply gradients. A gradient that is not finite never changes a weight.

On a CPU the host checks every step, and the run stops at the bad step. On a GPU that would make the host wait for the
device in every step, so the result of the check stays on the device. Optimizers that support `found_inf` (torch's fused
ones, and Muon) do not change weights and state if it is 1. A flag on the device then disables all later steps until the
host reads the gradient norms and stops the run. With any other optimizer, the host waits for the check.

The norm that `WeightUpdates.update` returns shows the outcome of the step:

    a finite number   the weights were changed
    inf               precision 16-mixed skipped the step and reduced the loss scale; not an error
    NaN               this step and all later ones leave the weights unchanged: the run must stop
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

# With a loss scale below 1, float16 gradients are scaled down. If they still overflow, the step is hopeless.
MIN_SCALE = 1.0
MAX_SKIPPED_STEPS = 100
CLIP_EPS = 1e-6  # as in torch's clip_grads_with_norm_


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
        """clip_norm: maximum norm of all gradients together; 0 for no limit.

        waits: whether the host checks every step. None: if that costs nothing, or an optimizer lacks `found_inf`.
        """
        self._optimizers, self._parameters = optimizers, list(model.parameters())
        self._clip_norm = clip_norm or math.inf
        self._scaler: torch.amp.GradScaler | None = getattr(fabric.strategy.precision, "scaler", None)
        must_wait = not all(map(_can_skip, optimizers.torch_optimizers))
        self._waits = (fabric.device.type != "cuda" or must_wait) if waits is None else waits
        # A flag (0 or 1) and a count. They are on the device, so that the host does not wait for them.
        self._failed, self._num_skipped = (torch.zeros((), device=fabric.device) for _ in range(2))
        self._one = torch.ones((), device=fabric.device)
        self.has_failed = False  # whether the host already knows that the run must stop

    def update(self) -> Tensor:
        """Clip the gradients by their norm over all parameters, update the weights, and return the norm."""
        if self._scaler is not None:
            for optimizer in self._optimizers.torch_optimizers:
                self._scaler.unscale_(optimizer)
        norm = self._clip()
        is_bad = (~torch.isfinite(norm)).float()
        try:
            self._step(skip=torch.maximum(self._failed, is_bad))
        finally:
            for optimizer in self._optimizers.torch_optimizers:
                vars(optimizer).pop("clip", None)  # a later step outside of a run must not use it
        self._optimizers.zero_grad()
        self._failed = torch.maximum(self._failed, is_bad * self._is_hopeless(is_bad))
        if self._waits:
            self.has_failed = bool(self._failed)
        return torch.where(self._failed > 0, math.nan, torch.where(is_bad > 0, math.inf, norm))

    def _clip(self) -> Tensor:
        """Clip the gradients, or let the optimizers do that while they read them, and return their norm."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        optimizers = self._optimizers.torch_optimizers
        if all(getattr(optimizer, "folds_clipping", False) for optimizer in optimizers):
            factor = (self._clip_norm / (norm + CLIP_EPS)).clamp(max=1.0)
            for optimizer in optimizers:
                optimizer.clip = factor  # type: ignore[attr-defined]
        else:
            nn.utils.clip_grads_with_norm_(self._parameters, self._clip_norm, norm)
        return _whole(norm)

    def _step(self, skip: Tensor) -> None:
        """Run the optimizers, unless `skip`, a 0 or 1 on the device, is 1."""
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
        """Return 1 if gradients that are not finite are an error. While the loss scale adapts, a few are normal."""
        if self._scaler is None:
            return self._one
        self._scaler.update()
        self._num_skipped = (self._num_skipped + 1) * is_bad
        scale = self._scaler.scale(self._one)
        return ((scale < MIN_SCALE) | (self._num_skipped >= MAX_SKIPPED_STEPS)).float()


def _can_skip(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the optimizer supports `found_inf`, by the attribute that torch's GradScaler uses."""
    return isinstance(optimizer, Muon) or bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def are_finite(tensors: Iterable[Tensor]) -> bool:
    """Return whether all tensors are finite, on all devices if they are sharded. Waits for the device."""
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    here = [local(tensor.detach()) for tensor in floats]
    here = [tensor for tensor in here if tensor.numel()]  # a weight with few rows may have none on some devices
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
