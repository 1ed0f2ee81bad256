"""silu(gate) * up and its gradient."""

import math

import pytest
import torch

from gristmill.lm.kernels.float8 import E4M3, E5M2
from gristmill.lm.kernels.swiglu import plain_swiglu, swiglu, swiglu_gradient
from lm.kernels.comparing import BOTH, assert_near, assert_stored, site

# Tokens and columns of h. Programs handle tiles of 4 x 512; of 32 x 128 if they write 8-bit floats.
SHAPES = [(1, 16), (17, 48), (70, 80), (18, 256), (5, 520)]
FLOAT8_SHAPES = [(1, 16), (17, 48), (70, 80), (33, 144)]


def plain_gradient(gate_up, grad):
    leaf = gate_up.float().requires_grad_()
    return torch.autograd.grad(plain_swiglu(leaf), leaf, grad.float())[0]


def inputs(shape, dtype, device):
    rows, width = shape
    return torch.randn(rows, 2 * width, device=device).to(dtype), torch.randn(rows, width, device=device).to(dtype)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_product_and_its_gradient_are_those_of_plain_torch(device, shape, dtype):
    gate_up, grad = inputs(shape, dtype, device)
    wide, small = swiglu(gate_up)
    assert_near(wide, plain_swiglu(gate_up))
    assert small is None
    found = swiglu_gradient(gate_up, grad)
    assert_near(found.gate_up_NF, plain_gradient(gate_up, grad))
    assert found.float8_NF is None


@pytest.mark.parametrize("small", [E4M3, E5M2])
@pytest.mark.parametrize("keeps_wide", [True, False])
@pytest.mark.parametrize("shape", FLOAT8_SHAPES)
def test_8_bit_floats_and_their_largest_number_are_those_of_the_plain_result(device, shape, keeps_wide, small):
    gate_up, grad = inputs(shape, torch.bfloat16, device)
    one, other = site(small, device), site(small, device)
    wide, found = swiglu(gate_up, site=one, keeps_wide=keeps_wide)
    assert_stored(found, plain_swiglu(gate_up.float()), one)
    assert (wide is not None) == keeps_wide
    result = swiglu_gradient(gate_up, grad, site=other, keeps_wide=keeps_wide)
    assert_stored(result.float8_NF, plain_gradient(gate_up, grad), other)
    assert (result.gate_up_NF is not None) == keeps_wide


def test_large_gates_of_both_signs_overflow_nowhere(device):
    gate_up = torch.tensor([[-1e4, -100.0, 0.0, 100.0, 1e4, *[3.0] * 5]], device=device)
    wide, _ = swiglu(gate_up)
    torch.testing.assert_close(wide, torch.tensor([[0.0, 0.0, 0.0, 300.0, 3e4]], device=device))
    found = swiglu_gradient(gate_up, torch.ones_like(wide)).gate_up_NF
    torch.testing.assert_close(found, plain_gradient(gate_up, torch.ones_like(wide)))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_number_is_not_hidden_by_8_bit_floats(device, bad):
    gate_up, grad = inputs((3, 16), torch.float32, device)
    gate_up[1, 5] = bad
    wide, small = swiglu(gate_up, site=site(E4M3, device))
    assert small.float().isnan().nonzero().tolist() == (~wide.isfinite()).nonzero().tolist() == [[1, 5]]
    grad[2, 7] = bad
    found = swiglu_gradient(gate_up, grad, site=site(E5M2, device))
    assert torch.equal(found.float8_NF.float().isnan(), ~found.gate_up_NF.isfinite())
    assert found.float8_NF[2, 7].float().isnan() and found.float8_NF[2, 23].float().isnan()
