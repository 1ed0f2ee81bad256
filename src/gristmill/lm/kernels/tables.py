"""A table of many tensors, for kernels that treat all of them in one launch.

Each row of the table is one group of tensors of equal size, such as a weight, its gradient and its moments; each column
has one dtype. A kernel gets the first tensor of each dtype as an argument, and finds all others by their distance from
it: a compiler reads 16 bytes at a time only from pointers that it knows to be aligned, such as arguments.

A second table has one line per program: the row, and the first element that the program handles.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

__all__ = ["ALIGNMENT", "BLOCK", "MISSING", "TensorTable", "are_aligned"]

BLOCK = 4096  # elements per program
ALIGNMENT = 16  # bytes, of all tensors
MISSING = -(2**62)  # place of a tensor that is None


class TensorTable:
    """The table of some columns of tensors, on their device. The last column has the number of elements.

    Attributes:
        places: Distance of each tensor from the origin of its dtype, in elements: rows x (columns + 1).
        programs: Row and first element of each program.
    """

    def __init__(self, columns: Sequence[Sequence[Tensor | None]]) -> None:
        """The tensors of the first column must all exist."""
        first = [tensor for tensor in columns[0] if tensor is not None]
        self._device = first[0].device
        self._origins: dict[torch.dtype, Tensor] = {}
        for tensor in (tensor for column in columns for tensor in column if tensor is not None):
            self._origins.setdefault(tensor.dtype, tensor)
        sizes = torch.tensor([tensor.numel() for tensor in first])
        self._rows = torch.stack([*(self._places(column) for column in columns), sizes], dim=1)
        self._addresses = [self._addresses_of(column) for column in columns]
        self.places = self._moved(self._rows)
        counts = [triton.cdiv(tensor.numel(), BLOCK) for tensor in first]
        numbers = torch.arange(len(first)).repeat_interleave(torch.tensor(counts))
        begins = torch.cat([torch.arange(count) * BLOCK for count in counts])
        self.programs = self._moved(torch.stack([numbers, begins], dim=1))

    def origin(self, dtype: torch.dtype) -> Tensor:
        """Return the tensor from which distances of this dtype are measured; any tensor if no column has it."""
        return self._origins.get(dtype, next(iter(self._origins.values())))

    def set_column(self, number: int, tensors: Sequence[Tensor]) -> None:
        """Replace the tensors of a column, such as gradients. Their addresses rarely change: torch reuses memory."""
        addresses = self._addresses_of(tensors)
        if addresses != self._addresses[number]:
            self._rows[:, number], self._addresses[number] = self._places(tensors), addresses
            self.places = self._moved(self._rows)

    def _places(self, column: Sequence[Tensor | None]) -> Tensor:
        return torch.tensor([MISSING if tensor is None else self._place(tensor) for tensor in column])

    def _place(self, tensor: Tensor) -> int:
        return (tensor.data_ptr() - self._origins[tensor.dtype].data_ptr()) // tensor.itemsize

    @staticmethod
    def _addresses_of(column: Sequence[Tensor | None]) -> tuple[int, ...]:
        return tuple(0 if tensor is None else tensor.data_ptr() for tensor in column)

    def _moved(self, tensor: Tensor) -> Tensor:
        if self._device.type != "cuda":
            return tensor.clone()
        return tensor.pin_memory().to(self._device, non_blocking=True)


def are_aligned(tensors: Sequence[Tensor]) -> bool:
    """Return whether a table can hold these tensors."""
    return all(tensor.data_ptr() % ALIGNMENT == 0 and tensor.is_contiguous() for tensor in tensors)
