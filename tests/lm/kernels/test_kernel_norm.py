"""The residual stream and its norm in one kernel, and its gradient."""

import math

import pytest
import torch

from gristmill.lm.kernels import rms_norm
from gristmill.lm.kernels.float8 import E4M3, E5M2
from gristmill.lm.kernels.rms_norm import NARROW, add_rms_norm, plain_add_rms_norm, rms_norm_gradient
from lm.kernels.comparing import BOTH, assert_near, assert_stored, relative, site

# One token; not a multiple of a block; several blocks; columns of a program with fewer tokens.
SHAPES = [(1, 16), (5, 48), (9, 33), (40, 16), (9, NARROW + 8)]


def inputs(shape, dtype, device):
    x, delta = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
    return x, delta, torch.randn(shape[1], device=device)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_sum_and_its_norm_are_those_of_plain_torch(device, shape, dtype):
    x, delta, weight = inputs(shape, dtype, device)
    found = add_rms_norm(x, delta, weight, eps=1e-5)
    stream, normed = plain_add_rms_norm(x, delta, weight, eps=1e-5)
    assert torch.equal(found.stream_ND, stream)
    assert_near(found.normed_ND, normed)
    assert found.float8_ND is None


@pytest.mark.parametrize("dtype", BOTH)
def test_without_delta_the_stream_is_the_input_itself(device, dtype):
    x, _, weight = inputs((3, 20), dtype, device)
    before = x.clone()
    found = add_rms_norm(x, None, weight, eps=1e-5)
    assert found.stream_ND is x and torch.equal(x, before)
    assert_near(found.normed_ND, plain_add_rms_norm(x, None, weight, eps=1e-5)[1])


@pytest.mark.parametrize("small", [E4M3, E5M2])
@pytest.mark.parametrize("keeps_normed", [True, False])
@pytest.mark.parametrize("shape", SHAPES[1::3])
def test_8_bit_floats_come_from_the_norm_before_it_is_rounded_to_bfloat16(device, shape, small, keeps_normed):
    x, delta, weight = inputs(shape, torch.bfloat16, device)
    one = site(small, device)
    found = add_rms_norm(x, delta, weight, eps=1e-5, site=one, keeps_normed=keeps_normed)
    exact = plain_add_rms_norm((x + delta).float(), None, weight, eps=1e-5)[1]
    assert_stored(found.float8_ND, exact, one)
    assert (found.normed_ND is not None) == keeps_normed


def test_a_token_of_zeros_has_a_norm_of_zero_and_a_finite_gradient(device):
    x, _, weight = inputs((2, 16), torch.float32, device)
    x[1] = 0
    found = add_rms_norm(x, None, weight, eps=1e-5)
    assert found.normed_ND[1].abs().max() == 0
    grad, grad_weight = rms_norm_gradient(torch.ones_like(x), x, weight, found.factor_N)
    assert grad.isfinite().all() and grad_weight.isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_number_reaches_its_whole_token_in_every_form_and_no_other(device, bad):
    x, delta, weight = inputs((3, 16), torch.float32, device)
    x[1, 5] = bad
    found = add_rms_norm(x, delta, weight, eps=1e-5, site=site(E4M3, device))
    for form in (found.normed_ND, found.float8_ND.float()):
        assert form[1, 5].isnan() and form[[0, 2]].isfinite().all()
    grad, grad_weight = rms_norm_gradient(torch.ones_like(x), found.stream_ND, weight, found.factor_N)
    assert not grad[1].isfinite().all() and grad[[0, 2]].isfinite().all()
    assert not grad_weight.isfinite().all()


def plain_gradients(grad, stream, weight, *, others=None, factor=1.0):
    stream, weight = stream.float().requires_grad_(), weight.clone().requires_grad_()
    _, normed = plain_add_rms_norm(stream, None, weight, eps=1e-5)
    grad_stream, grad_weight = torch.autograd.grad(normed, (stream, weight), grad.float() * factor)
    return grad_stream + (0 if others is None else others.float()), grad_weight


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_last", [True, False])
def test_the_gradients_are_those_of_plain_torch(device, shape, dtype, is_last):
    """The last norm has a scale, and nothing else reads its stream."""
    x, _, weight = inputs(shape, dtype, device)
    grad, others = (torch.randn(shape, device=device).to(dtype) for _ in range(2))
    factor_N = add_rms_norm(x, None, weight, eps=1e-5).factor_N
    if is_last:
        options, plain = {"scale": torch.full((1,), 0.25, device=device)}, {"factor": 0.25}
    else:
        options, plain = {"grad_stream_ND": others}, {"others": others}
    found = rms_norm_gradient(grad, x, weight, factor_N, **options)
    expected = plain_gradients(grad, x, weight, **plain)
    assert_near(found[0], expected[0])
    assert found[1].dtype == torch.float32
    assert relative(found[1], expected[1]) < 1e-5


def test_a_program_adds_the_gradients_of_the_weight_of_all_its_blocks(device, monkeypatch):
    monkeypatch.setattr(rms_norm, "_num_programs", lambda device: 2)
    x, grad, weight = inputs((21, 16), torch.float32, device)
    found = rms_norm_gradient(grad, x, weight, add_rms_norm(x, None, weight, eps=1e-5).factor_N)
    for one, other in zip(found, plain_gradients(grad, x, weight), strict=True):
        assert relative(one, other) < 1e-5


def test_the_gradient_of_the_weight_has_the_same_bits_twice(device):
    x, grad, weight = inputs((300, 16), torch.bfloat16, device)
    factor_N = add_rms_norm(x, None, weight, eps=1e-5).factor_N
    one, other = (rms_norm_gradient(grad, x, weight, factor_N)[1] for _ in range(2))
    assert torch.equal(one, other)
