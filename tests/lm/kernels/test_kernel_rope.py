"""Rotary positions of queries and keys, their norm, and the gradient of q, k and v in one matrix."""

import math

import pytest
import torch

from gristmill.lm.kernels.float8 import E4M3, E5M2
from gristmill.lm.kernels.rope import Heads, plain_rotated, rotated, rotation_gradient
from lm.kernels.comparing import BOTH, assert_near, assert_stored, relative, site

# Queries, keys, size, sequences, tokens: 32 rows of a block hold parts of sequences, whole ones, or a few tokens.
CASES = [(2, 2, 16, 1, 1), (4, 2, 16, 3, 13), (3, 1, 32, 2, 40)]


class Case:
    def __init__(self, case, *, has_norm, dtype, device):
        h, g, size, self.num_sequences, self.num_tokens = case
        angles = torch.rand(self.num_tokens + 3, size // 2, device=device) * 6  # tables are as long as the context
        self.heads = Heads(h, g, size, angles.cos(), angles.sin(), 1e-5)
        self.qkv = torch.randn(self.num_sequences * self.num_tokens, self.heads.width, device=device).to(dtype)
        self.norms = (torch.randn(size, device=device), torch.randn(size, device=device)) if has_norm else None
        shape = (self.num_sequences, self.num_tokens)
        self.grads = tuple(torch.randn(*shape, heads, size, device=device).to(dtype) for heads in (h, g, g))

    def plain(self, qkv=None, norms=None):
        return plain_rotated(
            self.qkv if qkv is None else qkv, self.heads, num_tokens=self.num_tokens, norm_K2=norms or self.norms
        )

    def found(self):
        return rotated(self.qkv, self.heads, num_tokens=self.num_tokens, norm_K2=self.norms)

    def plain_gradients(self):
        leaf = self.qkv.float().requires_grad_()
        norms = tuple(norm.clone().requires_grad_() for norm in self.norms) if self.norms else ()
        results = self.plain(leaf, norms)
        return torch.autograd.grad(results, (leaf, *norms), [grad.float() for grad in self.grads])

    def gradient(self, grads=None, **options):
        normed = (self.qkv, *self.norms) if self.norms else None
        return rotation_gradient(grads or self.grads, self.heads, normed=normed, **options)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_queries_and_keys_are_rotated_as_in_plain_torch(device, case, has_norm, dtype):
    one = Case(case, has_norm=has_norm, dtype=dtype, device=device)
    expected, before = one.plain(), one.qkv.clone()
    for found, plain in zip(one.found(), expected, strict=True):
        assert found.shape == plain.shape
        assert_near(found, plain)
    assert torch.equal(one.qkv, before) == has_norm


def test_the_rotation_is_that_of_the_attention_layer(device):
    """Neighbours form pairs, and the tables of the layer have each angle twice."""
    from gristmill.lm.models.gpt.attention import rope_tables, rotate
    from gristmill.lm.models.gpt.options import GPTConfig

    config = GPTConfig(vocab_size=300, context_length=8, num_layers=1, num_heads=2, d_model=32)
    cos, sin = (table.to(device) for table in rope_tables(config))
    heads = Heads(2, 2, 16, cos[:, ::2].contiguous(), -sin[:, ::2].contiguous())
    qkv = torch.randn(8, heads.width, device=device)
    x = qkv[:, :16].clone()
    q, _, _ = rotated(qkv, heads, num_tokens=8)
    torch.testing.assert_close(q[0, :, 0], rotate(x, cos, sin))


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_plain_torch(device, case, has_norm, dtype):
    one = Case(case, has_norm=has_norm, dtype=dtype, device=device)
    expected, *norms = one.plain_gradients()
    found = one.gradient()
    assert_near(found.qkv_NA, expected)
    assert found.float8_NA is None
    assert (found.norm_K2 is not None) == has_norm
    for grad, plain in zip(found.norm_K2 or (), norms, strict=True):
        assert relative(grad, plain) < 1e-5


def transposed_heads(x):
    """The layout of attention: B x heads x T x K."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def transposed_numbers(x):
    """The numbers of a head are not neighbours, as after a product with transposed keys."""
    return x.transpose(-1, -2).contiguous().transpose(-1, -2)


def parts_of_one(x):
    return torch.cat([x, x], -1)[..., : x.shape[-1]]


def expanded(x):
    return x[:, :1].expand_as(x)


@pytest.mark.parametrize("layout", [transposed_heads, transposed_numbers, parts_of_one, expanded])
@pytest.mark.parametrize("has_norm", [False, True])
def test_gradients_may_have_any_strides(device, layout, has_norm):
    one = Case((4, 2, 16, 2, 5), has_norm=has_norm, dtype=torch.float32, device=device)
    grads = tuple(map(layout, one.grads))
    expected = one.gradient(tuple(grad.contiguous() for grad in grads))
    assert torch.equal(one.gradient(grads).qkv_NA, expected.qkv_NA)


@pytest.mark.parametrize("small", [E4M3, E5M2])
@pytest.mark.parametrize("keeps_wide", [True, False])
@pytest.mark.parametrize("has_norm", [False, True])
def test_8_bit_floats_and_their_largest_number_are_those_of_the_plain_result(device, has_norm, keeps_wide, small):
    one = Case((4, 2, 16, 3, 13), has_norm=has_norm, dtype=torch.bfloat16, device=device)
    place = site(small, device)
    found = one.gradient(site=place, keeps_wide=keeps_wide)
    assert_stored(found.float8_NA, one.plain_gradients()[0], place)
    assert (found.qkv_NA is not None) == keeps_wide


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_gradient_is_not_hidden_by_8_bit_floats(device, part, bad):
    one = Case((4, 2, 16, 1, 5), has_norm=False, dtype=torch.float32, device=device)
    one.grads[part][0, 3, 1, 4] = bad
    found = one.gradient(site=site(E5M2, device))
    assert torch.equal(found.float8_NA.float().isnan(), ~found.qkv_NA.isfinite())
    assert not found.qkv_NA[3].isfinite().all() and found.qkv_NA[[0, 1, 2, 4]].isfinite().all()
