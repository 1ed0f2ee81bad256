"""Conversion to 8-bit floats and transposes, compared byte by byte with plain torch."""

import math

import pytest
import torch

from gristmill.lm.kernels.float8 import E4M3, E5M2, LARGEST, plain_float8, quantized, transposed
from lm.kernels.comparing import BOTH, bits, site

SHAPES = [(1, 1), (1, 70), (65, 1), (64, 64), (65, 130)]  # below, at and over a tile


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("small", [E4M3, E5M2])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_matrix_and_its_transpose_have_the_bytes_of_plain_torch(device, shape, small, dtype):
    x = (torch.randn(shape, device=device) * 20).to(dtype)
    one, other = site(small, device), site(small, device)
    straight, turned = quantized(x, one, columns=True)
    expected = plain_float8(x, other)
    assert torch.equal(bits(straight), bits(expected))
    assert torch.equal(bits(turned), bits(expected).t())
    assert torch.equal(one.largest, other.largest)


def test_only_the_requested_forms_are_written(device):
    x = torch.randn(5, 3, device=device)
    straight, turned = quantized(x, site(E4M3, device))
    assert straight.shape == (5, 3) and turned is None
    straight, turned = quantized(x, site(E4M3, device), rows=False, columns=True)
    assert straight is None and turned.shape == (3, 5)


@pytest.mark.parametrize("small", [E4M3, E5M2])
def test_finite_numbers_saturate_and_never_become_nan_or_infinite(device, small):
    limit = LARGEST[small]
    near = torch.tensor([0.999, 1.0, 1.0001, 1.06, 1.07, 1.25, 2.0, 1e3], device=device) * limit
    x = torch.cat([near, -near, torch.tensor([3e38, -3e38, 0.0, 1e-30], device=device)])[None]
    one = site(small, device, scale=2.0)
    straight, _ = quantized(x, one)
    assert straight.float().isfinite().all()
    assert straight.float().abs().max() == limit
    assert straight[0, :8].float().min() > 0 > straight[0, 8:16].float().max()
    assert one.largest == 3e38


@pytest.mark.parametrize("small", [E4M3, E5M2])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_become_nan_instead_of_the_limit(device, small, bad):
    x = torch.ones(3, 5, device=device)
    x[1, 2] = bad
    straight, turned = quantized(x, site(small, device), columns=True)
    assert straight.float().isnan().nonzero().tolist() == [[1, 2]]
    assert turned.float().isnan().nonzero().tolist() == [[2, 1]]
    assert torch.equal(bits(straight), bits(plain_float8(x, site(small, device))))


def test_the_largest_number_is_that_of_all_calls_and_of_all_tiles(device):
    one = site(E4M3, device)
    x = torch.randn(130, 130, device=device)
    for place, number in (((129, 129), -50.0), ((0, 0), 40.0), ((70, 3), 60.0)):
        y = x.clone()
        y[place] = number
        quantized(y, one)
    assert one.largest == 60


@pytest.mark.parametrize("small", [E4M3, E5M2])
@pytest.mark.parametrize("shape", [(1, 1), (1, 200), (130, 1), (128, 128), (129, 257)])
def test_a_transpose_moves_bytes_of_every_value(device, shape, small):
    x = torch.arange(shape[0] * shape[1], device=device).remainder(256).to(torch.uint8).reshape(shape).view(small)
    assert torch.equal(bits(transposed(x)), bits(x).t())
    assert transposed(x).is_contiguous()
