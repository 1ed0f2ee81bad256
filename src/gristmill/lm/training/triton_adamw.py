"""TritonAdamW: torch's AdamW, with one kernel that clips gradients, updates weights and writes their copies.

Its state has the names and shapes of torch's AdamW, so a run may resume with either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from gristmill.errors import OptionError

if TYPE_CHECKING:
    from gristmill.lm.kernels.tables import TensorTable
    from gristmill.lm.kernels.weight_copies import WeightCopies

__all__ = ["TritonAdamW"]


@dataclass
class _Prepared:
    """The weights of a group that have a gradient, with their state, as the kernel takes them."""

    weights: list[Tensor]
    addresses: list[int]
    table: TensorTable
    steps: Tensor  # one per weight; the "step" of each state is an element of it
    views: list[Tensor]


class TritonAdamW(torch.optim.AdamW):
    """AdamW for weights on a GPU.

    Like torch's fused AdamW, a step uses the attributes `found_inf`, a tensor of 0 or 1 (if it is 1, nothing changes),
    and `grad_scale`, by which gradients are divided. The attribute `clip`, a tensor on the device, is a factor of all
    gradients. The host does not wait for the device.
    """

    folds_clipping = True

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        copies: WeightCopies | None = None,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
    ) -> None:
        """`copies`: copies of weights, which a step writes too."""
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        self._copies = copies
        self._prepared: dict[int, _Prepared] = {}

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the weights that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._copies is not None:
            # A skipped step writes no copies, so they must be valid before.
            self._copies.refresh()
        for number, group in enumerate(self.param_groups):
            self._step(number, group)
        return loss

    def _step(self, number: int, group: dict[str, Any]) -> None:
        from gristmill.lm.kernels.adamw import GRADIENT, adamw  # needs Triton
        from gristmill.lm.kernels.launching import on_device_of
        from gristmill.lm.kernels.tables import are_aligned

        weights = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        grads = [weight.grad if are_aligned([weight.grad]) else weight.grad.contiguous().clone() for weight in weights]
        prepared = self._prepare(number, weights, grads)
        factors = {name: getattr(self, name, None) for name in ("found_inf", "clip", "grad_scale")}
        skip = factors["found_inf"] if factors["found_inf"] is not None else prepared.steps.new_zeros(())
        clip = factors["clip"] if factors["clip"] is not None else prepared.steps.new_ones(())
        if factors["grad_scale"] is not None:
            clip = clip / factors["grad_scale"]
        prepared.steps.add_(1 - skip)
        prepared.table.set_column(GRADIENT, grads)
        with on_device_of(weights[0]):  # Triton launches kernels on the current device
            adamw(
                prepared.table,
                prepared.steps,
                lr=group["lr"],
                betas=group["betas"],
                eps=group["eps"],
                weight_decay=group["weight_decay"],
                clip=clip,
                skip=skip,
            )
        # torch cannot see that a kernel has changed these.
        torch.autograd.graph.increment_version(weights)
        if self._copies is not None:
            self._copies.note_written(weight for weight in weights if self._copies.has(weight))

    def _prepare(self, number: int, weights: list[Tensor], grads: list[Tensor]) -> _Prepared:
        """Return the tables of these weights, which are made again if weights or state were replaced."""
        from gristmill.lm.kernels.tables import TensorTable, are_aligned

        there = self._prepared.get(number)
        if there is not None and there.addresses == self._addresses(weights) and self._has_steps(there):
            return there
        if not are_aligned(weights):
            raise OptionError(
                "a weight is not contiguous, or does not begin at a multiple of 16 bytes, as the kernel requires. "
                "Use kernels='plain', or make the weight contiguous before the optimizer is built."
            )
        for weight in weights:
            state = self.state[weight]
            state.setdefault("step", torch.zeros((), device=weight.device))
            for moment in ("exp_avg", "exp_avg_sq"):
                state.setdefault(moment, torch.zeros_like(weight, memory_format=torch.contiguous_format))
        states = [self.state[weight] for weight in weights]
        # torch's AdamW that is not fused has its steps on the CPU.
        steps = torch.stack([state["step"].to(weights[0].device) for state in states])
        views = list(steps.unbind())
        for state, view in zip(states, views, strict=True):
            state["step"] = view
        copies = [self._copy(weight) for weight in weights]
        moments = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        table = TensorTable([weights, grads, *moments, copies])
        prepared = _Prepared(weights, self._addresses(weights), table, steps, views)
        self._prepared[number] = prepared
        return prepared

    def _copy(self, weight: Tensor) -> Tensor | None:
        return self._copies.buffer(weight) if self._copies is not None and self._copies.has(weight) else None

    def _addresses(self, weights: list[Tensor]) -> list[int]:
        """Return the addresses of weights, moments and copies. `model.to` changes those, not the objects."""
        found = []
        for weight in weights:
            state, copy = self.state[weight], self._copy(weight)
            tensors = (weight, state.get("exp_avg"), state.get("exp_avg_sq"), copy)
            found += [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        return found

    def _has_steps(self, prepared: _Prepared) -> bool:
        """Whether the state is still the one that was prepared. Loading a checkpoint replaces it."""
        return _are_same(prepared.views, [self.state[weight].get("step") for weight in prepared.weights])


def _are_same(some: list[Tensor], others: list[Any]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))
