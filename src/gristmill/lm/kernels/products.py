"""Matrix products: of bfloat16 with a float32 result, and of 8-bit floats."""

from __future__ import annotations

import torch
from torch import Tensor

from gristmill.lm.kernels.float8 import Site

__all__ = ["add_product", "float8_product", "product"]


def product(a: Tensor, b: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return `a @ b`, in the dtype of `a` or in another one to which the sums are rounded only once."""
    if dtype is None or dtype == a.dtype:
        return torch.mm(a, b)
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=dtype)
    return torch.mm(a.to(dtype), b.to(dtype))  # CPUs have no such product


def add_product(result: Tensor, a: Tensor, b: Tensor) -> None:
    """Add `a @ b` to a float32 matrix."""
    if a.is_cuda and a.dtype != result.dtype:
        torch.addmm(result, a, b, out_dtype=result.dtype, out=result)
    else:
        result.addmm_(a.to(result.dtype), b.to(result.dtype))


def float8_product(
    a: Tensor, b_columns: Tensor, site_a: Site, site_b: Site, *, dtype: torch.dtype, is_fast: bool
) -> Tensor:
    """Return the product of two matrices of 8-bit floats, divided by their scales.

    b_columns: the transpose of the second matrix. is_fast: add in registers of fewer bits, which is up to 14 % faster.
    Good enough for activations; gradients need exact sums.
    """
    return torch._scaled_mm(a, b_columns.t(), site_a.inverse, site_b.inverse, out_dtype=dtype, use_fast_accum=is_fast)
