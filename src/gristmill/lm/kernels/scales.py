"""Scales: one number per tensor that is converted to 8-bit floats, from the largest number of the last step.

Waiting for the largest number of an activation or gradient itself would cost another pass over it. Between two steps it
hardly changes, and numbers that have grown beyond the range saturate; both keep a reserve. Weights are small, so their
scales come from the weights themselves: weights that start at 0 double from one step to the next.

The state is a few numbers per layer. It is part of a checkpoint, because a resumed run must round as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from gristmill.errors import CheckpointError
from gristmill.lm.kernels.float8 import E4M3, LARGEST, Site

__all__ = ["Scales"]

CALIBRATION_PASSES = 2  # that find the first real scales
STRIDE = 4  # numbers per tensor, so that each has its own 16 bytes: some products require the alignment

SMALLEST, GREATEST = 2.0**-126, 2.0**126  # so that a scale and its inverse are normal float32 numbers

# Name of a kind of tensor: format, share of its range to use, first scale.
# The first scales only have to be good enough for the two passes that find real ones.
KINDS = {
    "activation": (E4M3, 1 / 2, 8.0),
    "product": (E4M3, 1 / 2, 64.0),
    "weight": (E4M3, 440 / 448, 440.0),
    "gradient": (torch.float8_e5m2, 1 / 4, 64.0),
}


class Scales:
    """The scales of named tensors, each of one of `KINDS`."""

    def __init__(self, kinds: Mapping[str, str], *, device: torch.device, num_targets: int) -> None:
        """kinds: kind of each tensor by its name. num_targets: targets in a batch, by which the loss was divided."""
        self._names = list(kinds)
        shape = (len(kinds), STRIDE)
        first = [KINDS[kind][2] * (num_targets if kind == "gradient" else 1) for kind in kinds.values()]
        limits = [LARGEST[KINDS[kind][0]] * KINDS[kind][1] for kind in kinds.values()]
        self._limits = torch.tensor(limits, device=device)[:, None]
        self._scales = torch.tensor(first, device=device)[:, None].repeat(1, STRIDE)
        self._inverses = 1 / self._scales
        self._largest = torch.zeros(shape, device=device)
        self._sites = {
            name: Site(KINDS[kind][0], self._scales[i, :1], self._inverses[i, :1], self._largest[i, :1])
            for i, (name, kind) in enumerate(kinds.items())
        }
        self.weights = [name for name, kind in kinds.items() if kind == "weight"]
        self._rows_of_weights = torch.tensor([self._names.index(name) for name in self.weights], device=device)
        self._num_updates = 0

    @property
    def is_calibrated(self) -> bool:
        """Whether the scales come from real tensors. The first pass has guesses, so that of some tensors is crude."""
        return self._num_updates >= CALIBRATION_PASSES

    def __getitem__(self, name: str) -> Site:
        return self._sites[name]

    @torch.no_grad()
    def fit_weights(self, weights: list[Tensor]) -> None:
        """Compute the scales of the weights from the weights that will be converted, in the order of `weights`."""
        rows = self._rows_of_weights
        largest = torch.stack(torch._foreach_norm(weights, float("inf"))).float()[:, None]
        self._scales[rows] = self._found(largest, self._limits[rows], self._scales[rows])
        self._inverses[rows] = 1 / self._scales[rows]

    @staticmethod
    def _found(largest: Tensor, limits: Tensor, before: Tensor) -> Tensor:
        is_usable = (largest > 0) & torch.isfinite(largest)
        found = limits / torch.where(is_usable, largest, 1.0)
        return torch.where(is_usable, found.clamp(SMALLEST, GREATEST), before)

    @torch.no_grad()
    def update(self) -> None:
        """Compute the scales of the next step from the largest numbers of this one, and forget those.

        A tensor that was zero or not finite keeps its scale.
        """
        self._scales.copy_(self._found(self._largest, self._limits, self._scales))
        self._inverses.copy_(1 / self._scales)
        self._largest.zero_()
        self._num_updates += 1

    def largest(self) -> Tensor:
        """The largest numbers so far, one row per tensor. To reduce over processes in place."""
        return self._largest

    def state(self) -> dict[str, float]:
        """Return the scale of each tensor. Call it between steps, after `update`."""
        return dict(zip(self._names, self._scales[:, 0].tolist(), strict=True))

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`; `CheckpointError` if it is for other tensors."""
        self.check(state, self._names)
        scales = torch.tensor([float(state[name]) for name in self._names], device=self._scales.device)
        self._scales.copy_(scales[:, None].expand_as(self._scales))
        self._inverses.copy_(1 / self._scales)
        self._largest.zero_()
        self._num_updates = CALIBRATION_PASSES

    @staticmethod
    def check(state: Any, names: Iterable[str]) -> None:
        """Raise `CheckpointError` unless the state has a scale for each of these tensors."""
        for name in names:
            value: Any = state.get(name) if isinstance(state, Mapping) else state
            if type(value) not in (float, int) or not SMALLEST <= value <= GREATEST:
                raise CheckpointError(
                    f"the checkpoint has no valid scale of {name!r}: {value!r:.40}. Resume with the original float8, "
                    f"or from another checkpoint."
                )
