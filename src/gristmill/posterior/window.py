"""Window: the posteriors of the last steps, in a ring buffer on the device.

Shapes: B posteriors of a step, N in the window, Z latent dimensions. A row of the buffer, C = 3 Z + 1 numbers, has mu,
logvar, z and the reconstruction nats of one sequence (NaN if not given).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gristmill.errors import CheckpointError, OptionError
from gristmill.posterior.estimates import exact

__all__ = ["Rows", "Window"]


@dataclass(frozen=True, slots=True)
class Rows:
    """The posteriors of a window."""

    mu_NZ: Tensor
    logvar_NZ: Tensor
    z_NZ: Tensor
    nats_N: Tensor  # of reconstruction


class Window:
    """The rows of the last `num_steps` steps; at most the latest `capacity`."""

    def __init__(self, *, num_steps: int, capacity: int) -> None:
        self._num_steps, self._capacity = num_steps, capacity
        self._buffer_MC: Tensor | None = None  # M = capacity; allocated with the first row
        self._end = 0  # position of the next row
        self._counts: deque[tuple[int, int]] = deque()  # (step, rows), the latest last; known on the host
        self._num_counted = 0  # rows of all those steps; some of the first step may be overwritten

    @property
    def num_rows(self) -> int:
        """Number of posteriors in the window."""
        return min(self._capacity, self._num_counted)

    def add(self, step: int, mu_BZ: Tensor, logvar_BZ: Tensor, z_BZ: Tensor, nats: Tensor | float) -> None:
        """Add the posteriors of `step`, and drop those that leave the window."""
        buffer_MC = self._buffer_for(mu_BZ)
        nats_B1 = _column(nats, mu_BZ)
        number = min(len(mu_BZ), self._capacity)
        parts = [x[-number:] for x in (mu_BZ, logvar_BZ, z_BZ, nats_B1)]
        first = 0
        while first < number:  # twice if the ring buffer wraps around
            length = min(number - first, self._capacity - self._end)
            target_LC = buffer_MC[self._end : self._end + length]
            if length < number:
                torch.cat([part[first : first + length] for part in parts], dim=1, out=target_LC)
            else:
                torch.cat(parts, dim=1, out=target_LC)
            self._end = (self._end + length) % self._capacity
            first += length
        self._counts.append((step, number))
        self._num_counted += number
        self._forget(step)

    def _forget(self, step: int) -> None:
        """Drop the steps before the window of `step`, and steps whose rows have all been overwritten."""
        counts = self._counts
        while counts[0][0] <= step - self._num_steps or self._num_counted - counts[0][1] >= self._capacity:
            self._num_counted -= counts.popleft()[1]

    def rows(self) -> Rows:
        """Return all posteriors of the window, the latest last, in the type of the estimates."""
        rows_NC = exact(self._rows())
        latent_dim = rows_NC.shape[1] // 3
        mu_NZ, logvar_NZ, z_NZ = rows_NC[:, :-1].view(-1, 3, latent_dim).unbind(1)
        return Rows(mu_NZ, logvar_NZ, z_NZ, rows_NC[:, -1])

    def _rows(self) -> Tensor:
        assert self._buffer_MC is not None  # there are rows
        first = self._end - self.num_rows
        if first >= 0:
            return self._buffer_MC[first : self._end]
        return torch.cat([self._buffer_MC[first:], self._buffer_MC[: self._end]])

    def _buffer_for(self, mu_BZ: Tensor) -> Tensor:
        """Return the buffer, on the device of `mu_BZ`."""
        num_columns = 3 * mu_BZ.shape[1] + 1
        if self._buffer_MC is None:
            self._buffer_MC = torch.zeros(self._capacity, num_columns, device=mu_BZ.device, dtype=torch.float32)
        elif self._buffer_MC.shape[1] != num_columns:
            raise OptionError(
                f"mu must have {self._buffer_MC.shape[1] // 3} latent dimensions as before, got {mu_BZ.shape[1]}. "
                f"Use one monitor per model."
            )
        elif self._buffer_MC.device != mu_BZ.device:  # rows of a checkpoint, or the model was moved
            self._buffer_MC = self._buffer_MC.to(mu_BZ.device)
        return self._buffer_MC

    # State

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the rows, and their steps for JSON."""
        if not self._counts:
            return {}, {"counts": []}
        return {"rows": self._rows()}, {"counts": [list(count) for count in self._counts]}

    def load(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        counts = [(int(step), int(number)) for step, number in numbers["counts"]]
        rows_NC = tensors.get("rows")
        expected = sum(number for _, number in counts)
        if (rows_NC is None) != (not counts):
            raise CheckpointError(
                "the state of the posterior monitor is incomplete: rows or their steps are missing. "
                "Use another checkpoint."
            )
        self._buffer_MC, self._end, self._counts, self._num_counted = None, 0, deque(), 0
        if rows_NC is None:
            return
        if rows_NC.ndim != 2 or rows_NC.shape[1] % 3 != 1 or not 0 < len(rows_NC) <= expected:
            raise CheckpointError(
                f"the state of the posterior monitor is invalid: rows of shape {tuple(rows_NC.shape)} for "
                f"{expected:,} posteriors. Use another checkpoint."
            )
        kept_NC = rows_NC[-self._capacity :]
        self._buffer_MC = torch.zeros(self._capacity, rows_NC.shape[1], device=rows_NC.device, dtype=torch.float32)
        self._buffer_MC[: len(kept_NC)].copy_(kept_NC)
        self._end = len(kept_NC) % self._capacity
        self._counts = deque(_latest(counts, len(kept_NC)))
        self._num_counted = len(kept_NC)


def _column(number: Tensor | float, mu_BZ: Tensor) -> Tensor:
    """Return the number as a column for every row, on the same device."""
    if isinstance(number, Tensor):
        return number.to(mu_BZ.device, non_blocking=True).expand(len(mu_BZ), 1)
    return torch.full((len(mu_BZ), 1), number, device=mu_BZ.device, dtype=torch.float32)


def _latest(counts: list[tuple[int, int]], num_rows: int) -> list[tuple[int, int]]:
    """Return the steps of the last `num_rows` rows.

    >>> _latest([(1, 4), (2, 4), (3, 4)], 6)
    [(2, 2), (3, 4)]
    """
    kept: list[tuple[int, int]] = []
    for step, number in reversed(counts):
        if num_rows > 0:
            kept.insert(0, (step, min(number, num_rows)))
            num_rows -= number
    return kept
