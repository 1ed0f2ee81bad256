"""Muon: momentum with orthogonalized updates, for the matrices inside a model.

Shapes: K matrices of R rows and C columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor

from gristmill.lm.training.muon_sharing import local, sharing_of

__all__ = ["Muon", "orthogonalized", "row_counts"]

NUM_STEPS = 5
# Each step maps a singular value s to a s + b s^3 + c s^5. With these coefficients, five steps map values from 0.01 to
# 1 to about 0.7 to 1.2. That is close enough to 1, and much faster than a polynomial that converges to 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Optimizer that steps along the momentum of the gradient, with all its singular values set to about 1.

        momentum = beta * momentum + (1 - beta) * gradient
        update   = orthogonalized(beta * momentum + (1 - beta) * gradient) * sqrt(max(1, R / C))     (Nesterov)
        weight   = weight * (1 - lr * weight_decay) - lr * update

    For two-dimensional weights. `num_stacked` of a group is the number of matrices stacked in each weight, such as
    query, key and value, or a tuple with the rows of each. Each matrix is orthogonalized separately. All matrices of
    one shape are batched, because a single matrix does not fill a GPU.

    If torch.distributed has several processes, they share the work (muon_sharing.py). Weights must then be the same on
    all processes, as with DDP, or sharded by rows, as with FSDP2, and all processes must step together.

    Like torch's fused optimizers, a step uses the attribute `found_inf`, a tensor of 0 or 1. If it is 1, weights and
    momenta do not change. The host does not wait for the device.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        """`params`: weights, or groups of weights."""
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "num_stacked": 1})
        self._sharing = sharing_of([weight for group in self.param_groups for weight in group["params"]])

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
        skip: Tensor | None = getattr(self, "found_inf", None)
        updates = [self._momentum_updates(group, skip) for group in self.param_groups]
        self._orthogonalize([update for of_group in updates for update in of_group])
        for group, of_group in zip(self.param_groups, updates, strict=True):
            if of_group:
                weights, kept = list(map(local, _weights(group))), 1 - group["lr"] * group["weight_decay"]
                if skip is None:
                    torch._foreach_mul_(weights, kept)
                else:
                    torch._foreach_mul_(weights, torch.where(skip > 0, 1.0, kept))
                    of_group = [torch.where(skip > 0, 0.0, update) for update in of_group]
                torch._foreach_add_(weights, of_group, alpha=-group["lr"])
        return loss

    def _momentum_updates(self, group: dict[str, Any], skip: Tensor | None) -> list[Tensor]:
        weights = _weights(group)
        if not weights:
            return []
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [local(self.state[weight]["momentum"]) for weight in weights]
        gradients = [local(weight.grad) for weight in weights if weight.grad is not None]
        if skip is not None:  # with its own value as the gradient, a momentum does not change
            pairs = zip(momenta, gradients, strict=True)
            gradients = [torch.where(skip > 0, momentum, gradient) for momentum, gradient in pairs]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        return list(torch._foreach_lerp(gradients, momenta, group["momentum"]))

    def _orthogonalize(self, updates: list[Tensor]) -> None:
        """Orthogonalize in place the updates of all weights that have a gradient, in the order of the groups."""
        counts = [
            row_counts(weight.shape[0], group["num_stacked"])
            for group in self.param_groups
            for weight in _weights(group)
        ]
        if self._sharing is None:
            pairs = zip(updates, counts, strict=True)
            _orthogonalize_all([matrix for update, rows in pairs for matrix in torch.split(update, list(rows))])
        elif updates:
            self._sharing.apply(updates, counts, _orthogonalize_all, dtype=_working_dtype(updates[0]))


def row_counts(num_rows: int, num_stacked: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of rows of each matrix of a weight.

    >>> row_counts(6, 3), row_counts(6, (4, 1, 1))
    ((2, 2, 2), (4, 1, 1))
    """
    if isinstance(num_stacked, int):
        return (num_rows // num_stacked,) * num_stacked
    return num_stacked


def _weights(group: dict[str, Any]) -> list[Tensor]:
    return [weight for weight in group["params"] if weight.grad is not None]


def _orthogonalize_all(matrices: list[Tensor]) -> None:
    """Orthogonalize each matrix in place, with one batch per shape."""
    alike: dict[tuple[Any, ...], list[Tensor]] = defaultdict(list)
    for matrix in matrices:
        alike[matrix.shape, matrix.dtype, matrix.device].append(matrix)
    for (shape, *_), group in alike.items():
        scale = max(1.0, shape[0] / shape[1]) ** 0.5
        results_KRC = orthogonalized(torch.stack(group)).mul_(scale)
        torch._foreach_copy_(group, list(results_KRC.unbind()))


def orthogonalized(matrices_KRC: Tensor) -> Tensor:
    """Return approximately U V^T for each matrix U S V^T, so that its singular values are near 1.

    Newton-Schulz iteration: polynomials of the matrix, so that only matrix products are needed. On a GPU it runs in
    bf16, whose rounding errors are harmless here.
    """
    a, b, c = COEFFICIENTS
    dtype = _working_dtype(matrices_KRC)
    # The iteration converges only if no singular value exceeds 1. None exceeds the Frobenius norm.
    norms_K11 = torch.linalg.matrix_norm(matrices_KRC, keepdim=True)
    x_KRC = (matrices_KRC / (norms_K11 + 1e-7)).to(dtype)
    is_tall = x_KRC.shape[-2] > x_KRC.shape[-1]
    if is_tall:  # the products below are R x R, so rows should be the smaller dimension
        x_KRC = x_KRC.mT
    for _ in range(NUM_STEPS):
        square_KRR = x_KRC @ x_KRC.mT
        polynomial_KRR = torch.baddbmm(square_KRR, square_KRR, square_KRR, beta=b, alpha=c)
        x_KRC = torch.baddbmm(x_KRC, polynomial_KRR, x_KRC, beta=a)
    orthogonal_KRC: Tensor = x_KRC.mT if is_tall else x_KRC
    return orthogonal_KRC


def _working_dtype(tensor: Tensor) -> torch.dtype:
    return torch.bfloat16 if tensor.is_cuda else torch.float32
