"""Matrix products of bfloat16 and of 8-bit floats."""

import pytest
import torch

from gristmill.lm.kernels.float8 import E4M3, E5M2, quantized
from gristmill.lm.kernels.products import add_product, float8_product, product
from lm.kernels.comparing import BOTH, relative, site

LEAST_BITS = 2**-9  # of the sums of a Hopper GPU, which adds 8-bit products in registers of about 14 bits


@pytest.mark.parametrize("dtype", BOTH)
def test_a_float32_result_is_not_rounded_to_bfloat16(device, dtype):
    a, b = torch.randn(16, 48, device=device).to(dtype), torch.randn(48, 32, device=device).to(dtype)
    exact = a.double() @ b.double()
    assert product(a, b).dtype == dtype
    wide = product(a, b, dtype=torch.float32)
    assert wide.dtype == torch.float32
    assert relative(wide, exact) < 1e-5
    sums = torch.ones(16, 32, device=device)
    add_product(sums, a, b)
    assert relative(sums, exact + 1) < 1e-5


@pytest.mark.parametrize("small", [E4M3, E5M2])
@pytest.mark.parametrize("is_fast", [True, False])
def test_products_of_8_bit_floats_are_divided_by_both_scales(device, small, is_fast):
    a, b = torch.randn(16, 48, device=device), torch.randn(48, 32, device=device)
    site_a, site_b = site(small, device, scale=16.0), site(E4M3, device, scale=64.0)
    small_a, _ = quantized(a, site_a)
    _, small_b = quantized(b, site_b, rows=False, columns=True)
    found = float8_product(small_a, small_b, site_a, site_b, dtype=torch.float32, is_fast=is_fast)
    rounded = (small_a.double() / 16) @ (small_b.double().t() / 64)
    assert relative(found, rounded) < LEAST_BITS
    assert relative(found, a @ b) < (0.05 if small == E4M3 else 0.1)


def test_the_part_of_a_transpose_needs_no_copy(device):
    """The gradient of the head multiplies parts of the tokens: columns of the transposed input."""
    a, b = torch.randn(16, 48, device=device), torch.randn(32, 48, device=device)
    site_a, site_b = site(E4M3, device, scale=64.0), site(E4M3, device, scale=64.0)
    (small_a, _), (small_b, _) = quantized(a, site_a), quantized(b, site_b)
    parts = [
        float8_product(
            small_a[:, part].contiguous(), small_b[:, part], site_a, site_b, dtype=torch.float32, is_fast=False
        )
        for part in (slice(0, 32), slice(32, 48))
    ]
    whole = float8_product(small_a, small_b, site_a, site_b, dtype=torch.float32, is_fast=False)
    assert relative(parts[0] + parts[1], whole) < LEAST_BITS
