"""Muon on several devices: one device orthogonalizes each matrix and sends the result to the others.

With ddp all devices have all updates. Each device processes its matrices, and one collective sends all results to all
devices. With fsdp a device has some rows of every update. One collective sends the rows of a matrix to the device that
processes it, and another one sends the rows of the result back.

Shapes: R rows and C columns of a matrix.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gristmill.errors import OptionError

__all__ = ["Matrix", "Sharing", "assigned", "local", "rows_of_rank", "sharing_of"]


@dataclass(frozen=True)
class Matrix:
    """Rows of a weight that form one matrix: all of them, or a third if query, key and value are stacked."""

    weight: int  # index in the list of updates
    begin: int
    end: int
    num_columns: int

    @property
    def cost(self) -> int:
        """Number of multiplications to orthogonalize the matrix, up to a common factor."""
        small, large = sorted((self.end - self.begin, self.num_columns))
        return small * small * large


def assigned(matrices: Sequence[Matrix], num_ranks: int) -> list[int]:
    """Return the rank that processes each matrix. The most expensive are assigned first, to the least loaded rank.

    >>> assigned([Matrix(0, 0, 4, 4), Matrix(1, 0, 2, 2), Matrix(2, 0, 2, 2)], 2)
    [0, 1, 1]
    """
    work, owners = [0] * num_ranks, [0] * len(matrices)
    for number in sorted(range(len(matrices)), key=lambda number: (-matrices[number].cost, number)):
        owners[number] = min(range(num_ranks), key=lambda rank: (work[rank], rank))
        work[owners[number]] += matrices[number].cost
    return owners


def rows_of_rank(num_rows: int, rank: int, num_ranks: int) -> tuple[int, int]:
    """Return (begin, end) of the rows of a sharded weight on a rank: equal parts, the last ones smaller or empty.

    >>> [rows_of_rank(5, rank, 3) for rank in range(3)]
    [(0, 2), (2, 4), (4, 5)]
    """
    share = -(-num_rows // num_ranks)
    return min(rank * share, num_rows), min((rank + 1) * share, num_rows)


def local(tensor: Tensor) -> Tensor:
    """Return the part of a tensor on this rank."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def sharing_of(weights: Sequence[Tensor]) -> Sharing | None:
    """Return the `Sharing` for these weights, or None with a single device."""
    if not weights or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    meshes = {weight.device_mesh for weight in weights if hasattr(weight, "device_mesh")}
    if not meshes:
        return Sharing(None, is_sharded=False) if torch.distributed.get_world_size() > 1 else None
    (mesh, *others) = meshes
    by_rows = all(hasattr(each, "placements") and [str(p) for p in each.placements] == ["S(0)"] for each in weights)
    if others or mesh.ndim > 1 or not by_rows:
        raise OptionError(
            "optimizer='muon' needs unsharded weights, or weights that are all sharded by rows over the same "
            "devices. Pass optimizer='adamw', or shard with fully_shard over a one-dimensional mesh."
        )
    return Sharing(mesh.get_group(), is_sharded=True)


class Sharing:
    """Orthogonalizes matrices together with the other ranks of a group. All must call it with the same matrices."""

    def __init__(self, group: Any, *, is_sharded: bool) -> None:
        """is_sharded: each rank has some rows of each update; otherwise every rank has all rows."""
        self._group, self._is_sharded = group, is_sharded
        self._rank, self._size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
        self._layouts: dict[Any, _Layout] = {}

    def apply(
        self,
        updates: Sequence[Tensor],
        row_counts: Sequence[tuple[int, ...]],
        orthogonalize: Callable[[list[Tensor]], None],
        *,
        dtype: torch.dtype,
    ) -> None:
        """Replace each of `updates`, or the part of it on this rank, by its orthogonalized form.

        row_counts: for each update, the rows of the matrices stacked in it. orthogonalize: orthogonalizes whole
        matrices in place. dtype: type in which results are sent; it must represent them exactly.
        """
        key = tuple(row_counts), tuple(update.shape[1] for update in updates)
        if key not in self._layouts:
            self._layouts[key] = _layout(*key, self._size)
        work = self._apply_sharded if self._is_sharded else self._apply_whole
        work(updates, self._layouts[key], orthogonalize, dtype)

    def _apply_whole(
        self,
        updates: Sequence[Tensor],
        layout: _Layout,
        orthogonalize: Callable[[list[Tensor]], None],
        dtype: torch.dtype,
    ) -> None:
        by_rank = [[updates[each.weight][each.begin : each.end] for each in owned] for owned in layout.owned]
        orthogonalize(by_rank[self._rank])
        length = max(sum(matrix.numel() for matrix in matrices) for matrices in by_rank)
        mine = updates[0].new_zeros(length, dtype=dtype)
        everything = mine.new_empty(self._size * length)
        _pack(by_rank[self._rank], mine)
        _all_gather(everything, mine, group=self._group)
        for part, matrices in zip(everything.chunk(self._size), by_rank, strict=True):
            _unpack(part, matrices)

    def _apply_sharded(
        self,
        updates: Sequence[Tensor],
        layout: _Layout,
        orthogonalize: Callable[[list[Tensor]], None],
        dtype: torch.dtype,
    ) -> None:
        mine = layout.owned[self._rank]
        whole = [updates[each.weight].new_empty(each.end - each.begin, each.num_columns) for each in mine]
        # For each other rank: the rows of its matrices on this rank, and the rows of this rank's matrices on it.
        here = [[layout.rows_in_update(each, self._rank, updates) for each in owned] for owned in layout.owned]
        there = [
            [layout.rows_in_matrix(each, rank, matrix) for each, matrix in zip(mine, whole, strict=True)]
            for rank in range(self._size)
        ]
        self._exchange(here, there, functools.reduce(torch.promote_types, (update.dtype for update in updates)))
        orthogonalize(whole)
        self._exchange(there, here, dtype)

    def _exchange(self, sent: list[list[Tensor]], received: list[list[Tensor]], dtype: torch.dtype) -> None:
        """Send `sent[rank]` to each rank, and copy the tensors from each rank into `received[rank]`."""
        num_sent, num_received = ([sum(each.numel() for each in part) for part in side] for side in (sent, received))
        all_sent, all_received = (list(itertools.chain.from_iterable(side)) for side in (sent, received))
        like = (all_sent or all_received)[0]
        outgoing, incoming = (like.new_empty(sum(number), dtype=dtype) for number in (num_sent, num_received))
        _pack(all_sent, outgoing)
        torch.distributed.all_to_all_single(incoming, outgoing, num_received, num_sent, group=self._group)
        _unpack(incoming, all_received)


@dataclass(frozen=True)
class _Layout:
    """The matrices that each rank processes, and the rows of them on other ranks. The same on all ranks."""

    owned: list[list[Matrix]]  # by rank
    num_rows: list[int]  # by weight

    def rows_in_update(self, matrix: Matrix, rank: int, updates: Sequence[Tensor]) -> Tensor:
        """Return the rows of a matrix on this rank, as a view of its update."""
        begin, _ = self._rows(matrix, rank)
        first, last = self._overlap(matrix, rank)
        return updates[matrix.weight][first - begin : last - begin]

    def rows_in_matrix(self, matrix: Matrix, rank: int, whole_RC: Tensor) -> Tensor:
        """Return the rows of a matrix on a rank, as a view of the whole matrix."""
        first, last = self._overlap(matrix, rank)
        first, last = max(first - matrix.begin, 0), max(last - matrix.begin, 0)
        return whole_RC[first:last]

    def _overlap(self, matrix: Matrix, rank: int) -> tuple[int, int]:
        begin, end = self._rows(matrix, rank)
        return min(max(matrix.begin, begin), end), min(max(matrix.end, begin), end)

    def _rows(self, matrix: Matrix, rank: int) -> tuple[int, int]:
        return rows_of_rank(self.num_rows[matrix.weight], rank, len(self.owned))


def _layout(row_counts: Sequence[tuple[int, ...]], num_columns: Sequence[int], num_ranks: int) -> _Layout:
    matrices = [
        Matrix(number, begin, end, num_columns[number])
        for number, counts in enumerate(row_counts)
        for begin, end in itertools.pairwise(itertools.accumulate(counts, initial=0))
    ]
    owned: list[list[Matrix]] = [[] for _ in range(num_ranks)]
    for matrix, rank in zip(matrices, assigned(matrices, num_ranks), strict=True):
        owned[rank].append(matrix)
    return _Layout(owned, [sum(counts) for counts in row_counts])


def _all_gather(everything: Tensor, mine: Tensor, *, group: Any) -> None:
    # torch 2.13 renamed this function and warns about the old name.
    gather = getattr(torch.distributed, "all_gather_single", None) or torch.distributed.all_gather_into_tensor
    gather(everything, mine, group=group)


def _pack(tensors: list[Tensor], flat: Tensor) -> None:
    """Copy the tensors to the start of `flat`, one after the other."""
    if tensors:
        torch._foreach_copy_(_views(flat, tensors), tensors)


def _unpack(flat: Tensor, tensors: list[Tensor]) -> None:
    """Copy the start of `flat` to the tensors, one after the other."""
    if tensors:
        torch._foreach_copy_(tensors, _views(flat, tensors))


def _views(flat: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    sizes = [tensor.numel() for tensor in tensors]
    parts = torch.split(flat[: sum(sizes)], sizes)
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
