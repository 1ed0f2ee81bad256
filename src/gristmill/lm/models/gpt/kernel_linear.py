"""A weight of the GPT and its three products, in bfloat16 or in 8-bit floats.

    forward           y  = x W^T
    input_gradient    dx = dy W
    weight_gradient   dW = dy^T x

With 8-bit floats, the kernel that writes `x` or `dy` writes it in this form, so a matrix may exist in one form or in
both. The gradient of a weight is computed in float32, because it may be added to that of other micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gristmill.lm.kernels.float8 import Site, quantized, transposed
from gristmill.lm.kernels.products import float8_product, product
from gristmill.lm.kernels.weight_copies import WeightCopies

__all__ = ["Float8Sites", "KernelLinear", "Matrix"]


@dataclass(frozen=True)
class Matrix:
    """A matrix in bfloat16, in 8-bit floats, or both."""

    wide: Tensor | None
    small: Tensor | None = None
    turned: Tensor | None = None
    """The transpose of `small`, if it has been computed."""

    def small_transpose(self) -> Tensor:
        """Return the transpose in 8-bit floats."""
        if self.turned is not None:
            return self.turned
        assert self.small is not None
        return transposed(self.small)


@dataclass(frozen=True)
class Float8Sites:
    """The scales of the tensors of a product in 8-bit floats."""

    input: Site
    weight: Site
    gradient: Site
    in_weight_gradient: bool
    """Whether the gradient of the weight is computed in 8-bit floats too."""


class KernelLinear:
    """A weight and its products."""

    def __init__(self, weight: Tensor, copies: WeightCopies, sites: Float8Sites | None = None) -> None:
        """sites: use 8-bit floats with these scales. None: use the dtype of the copies."""
        self.weight, self._copies, self.sites = weight, copies, sites

    @property
    def input_site(self) -> Site | None:
        """Scale with which the input must be written in 8-bit floats."""
        return None if self.sites is None else self.sites.input

    @property
    def gradient_site(self) -> Site | None:
        """Scale with which the gradient of the result must be written in 8-bit floats."""
        return None if self.sites is None else self.sites.gradient

    @property
    def needs_wide(self) -> bool:
        """Whether input and gradient are also needed in bfloat16."""
        return self.sites is None or not self.sites.in_weight_gradient

    def forward(self, x: Matrix) -> Tensor:
        """Return x W^T."""
        if self.sites is None:
            assert x.wide is not None
            return product(x.wide, self._copies[self.weight].t())
        assert x.small is not None
        rows, _ = self._copies.float8(self.weight, self.sites.weight)
        # The sums of activations need no full precision; those of gradients do.
        return self._float8(x.small, rows, self.sites.input, self.sites.weight, is_fast=True)

    def kept(self, x: Matrix) -> Tensor:
        """Return the form of the input that `weight_gradient` needs."""
        kept = x.wide if self.needs_wide else x.small
        assert kept is not None
        return kept

    def input_gradient(self, grad: Matrix) -> Tensor:
        """Return dy W."""
        if self.sites is None:
            assert grad.wide is not None
            return product(grad.wide, self._copies[self.weight])
        assert grad.small is not None
        _, columns = self._copies.float8(self.weight, self.sites.weight)
        return self._float8(grad.small, columns, self.sites.gradient, self.sites.weight, is_fast=False)

    def weight_gradient(self, grad: Matrix, kept: Tensor) -> Tensor:
        """Return dy^T x. `kept` is the result of the method of this name."""
        if self.needs_wide:
            assert grad.wide is not None
            return product(grad.wide.t(), kept, dtype=torch.float32)
        assert self.sites is not None
        return float8_product(
            grad.small_transpose(),
            transposed(kept),
            self.sites.gradient,
            self.sites.input,
            dtype=torch.float32,
            is_fast=False,
        )

    def of_gradient(self, grad: Tensor) -> Matrix:
        """Return a gradient in the forms that this weight needs."""
        if self.sites is None:
            return Matrix(grad)
        small, turned = quantized(grad, self.sites.gradient, columns=self.sites.in_weight_gradient)
        return Matrix(grad, small, turned)

    def _float8(self, a: Tensor, b: Tensor, site_a: Site, site_b: Site, *, is_fast: bool) -> Tensor:
        return float8_product(a, b, site_a, site_b, dtype=self._copies[self.weight].dtype, is_fast=is_fast)
