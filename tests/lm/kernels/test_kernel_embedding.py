"""The gradient of the embedding."""

import math

import pytest
import torch

from gristmill.lm.kernels.embedding import add_embedding_gradient, plain_embedding_gradient
from lm.kernels.comparing import BOTH


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("is_deterministic", [False, True])
@pytest.mark.parametrize(("num_tokens", "width"), [(1, 16), (13, 48), (4, 33)])
def test_tokens_with_the_same_id_are_added_to_what_is_there(device, num_tokens, width, is_deterministic, dtype):
    """Rows of 5 ids; the gradient of a tied head is already in the table."""
    grad = torch.randn(num_tokens, width, device=device).to(dtype)
    ids = torch.randint(5, (num_tokens,), device=device)
    table = torch.randn(9, width, device=device)
    expected = table + plain_embedding_gradient(grad, ids, 9)
    found = add_embedding_gradient(table, grad, ids, is_deterministic=is_deterministic)
    assert found is table
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(found[5:], expected[5:])


def test_the_plain_gradient_is_that_of_torchs_embedding(device):
    ids = torch.randint(5, (13,), device=device)
    table, grad = torch.randn(9, 4, device=device, requires_grad=True), torch.randn(13, 4, device=device)
    (expected,) = torch.autograd.grad(torch.nn.functional.embedding(ids, table), table, grad)
    torch.testing.assert_close(plain_embedding_gradient(grad, ids, 9), expected)


def test_deterministic_sums_have_the_same_bits_twice(device):
    grad = torch.randn(500, 16, device=device)
    ids = torch.randint(2, (500,), device=device)
    one, other = (
        add_embedding_gradient(torch.zeros(2, 16, device=device), grad, ids, is_deterministic=True) for _ in range(2)
    )
    assert torch.equal(one, other)


def test_a_bad_gradient_reaches_its_row_only(device):
    grad = torch.ones(3, 16, device=device)
    grad[1, 3] = math.nan
    found = add_embedding_gradient(
        torch.zeros(4, 16, device=device), grad, torch.tensor([0, 2, 0], device=device), is_deterministic=False
    )
    assert found.isnan().nonzero().tolist() == [[2, 3]]
