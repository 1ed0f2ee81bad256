"""The cross-entropy of logits, with its gradient over the logits or in 8-bit floats."""

import math

import pytest
import torch

from gristmill.lm.kernels.cross_entropy import BLOCK, WIDE, cross_entropy, plain_cross_entropy
from gristmill.lm.kernels.float8 import E5M2
from lm.kernels.comparing import BOTH, relative

# Vocabulary and columns: padding in the last block, in a block of its own, and none at all; rows of large programs.
SIZES = [
    (40, 128),
    (128, 128),
    (BLOCK - 6, BLOCK + 128),
    (BLOCK, BLOCK),
    (BLOCK, BLOCK + 128),
    (BLOCK + 4, 2 * BLOCK + 8),
    (WIDE + 4, WIDE + 128),
]


def inputs(size, dtype, device, num_tokens=4):
    vocab_size, width = size
    logits = (torch.randn(num_tokens, width, device=device) * 3).to(dtype)
    targets = torch.randint(vocab_size, (num_tokens,), device=device)
    targets[1], targets[-1] = -100, vocab_size - 1
    return logits, targets


def loss_and_gradient(logits, targets, vocab_size, *, factor=1.0):
    losses, grad = torch.empty(len(targets), device=logits.device), logits.clone()
    cross_entropy(grad, targets, losses, vocab_size=vocab_size, grad_CV=grad, factor=factor)
    return losses, grad


def assert_as_plain(logits, targets, vocab_size, *, factor=1.0):
    losses, grad = loss_and_gradient(logits, targets, vocab_size, factor=factor)
    plain_losses, plain_grad = plain_cross_entropy(logits, targets, vocab_size=vocab_size, factor=factor)
    torch.testing.assert_close(losses, plain_losses, atol=1e-4, rtol=2e-5)
    rtol = 1e-4 if logits.dtype == torch.float32 else 2**-8
    torch.testing.assert_close(grad.float(), plain_grad, atol=1e-6 * factor, rtol=rtol)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("size", SIZES)
def test_losses_and_gradients_are_those_of_plain_torch(device, size, dtype):
    logits, targets = inputs(size, dtype, device)
    assert_as_plain(logits, targets, size[0], factor=2.0)


def test_padding_columns_change_no_loss_and_get_no_gradient(device):
    logits, targets = inputs((40, 128), torch.float32, device)
    one = loss_and_gradient(logits, targets, 40)
    logits[:, 40:] = 1e4
    other = loss_and_gradient(logits, targets, 40)
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    assert other[1][:, 40:].abs().max() == 0


@pytest.mark.parametrize("size", SIZES[:1] + SIZES[-2:])
def test_8_bit_gradients_leave_the_logits_and_are_rounded_once(device, size):
    logits, targets = inputs(size, torch.bfloat16, device)
    before = logits.clone()
    losses, grad = torch.empty(len(targets), device=device), torch.empty(logits.shape, device=device, dtype=E5M2)
    cross_entropy(logits, targets, losses, vocab_size=size[0], grad_CV=grad, factor=32768.0)
    assert torch.equal(logits, before)
    assert torch.equal(losses, loss_and_gradient(logits, targets, size[0])[0])
    expected = plain_cross_entropy(logits, targets, vocab_size=size[0], factor=32768.0)[1]
    torch.testing.assert_close(grad.float(), expected, atol=2**-16, rtol=0.13)
    assert relative(grad.float(), expected) < 0.08


def test_without_a_gradient_the_logits_are_only_read(device):
    logits, targets = inputs((40, 128), torch.float32, device)
    before, losses = logits.clone(), torch.empty(len(targets), device=device)
    cross_entropy(logits, targets, losses, vocab_size=40)
    assert torch.equal(logits, before)
    assert torch.equal(losses, loss_and_gradient(logits, targets, 40)[0])


def test_ignored_targets_have_no_loss_and_no_gradient(device):
    logits, _ = inputs((40, 128), torch.float32, device)
    losses, grad = loss_and_gradient(logits, torch.full((4,), -100, device=device), 40)
    assert losses.abs().max() == 0 and grad.abs().max() == 0


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("column", [0, BLOCK - 1, BLOCK, BLOCK + 3])
def test_one_huge_logit_in_any_block(device, column, dtype):
    logits, targets = inputs((BLOCK + 4, BLOCK + 128), dtype, device)
    logits[0, column] = logits[1, column] = 300
    logits[2, column] = -300
    targets[2] = column
    assert_as_plain(logits, targets, BLOCK + 4)


@pytest.mark.parametrize("low", [-300.0, -1e4, -math.inf])
@pytest.mark.parametrize("target", [5, BLOCK + 1])
def test_a_first_block_far_below_the_others_is_no_good_estimate_of_the_maximum(device, low, target):
    logits, targets = inputs((2 * BLOCK + 4, 2 * BLOCK + 128), torch.float32, device, num_tokens=2)
    logits[0, :BLOCK] = low
    targets[0] = target
    losses, grad = loss_and_gradient(logits, targets, 2 * BLOCK + 4)
    plain_losses, plain_grad = plain_cross_entropy(logits, targets, vocab_size=2 * BLOCK + 4)
    torch.testing.assert_close(losses, plain_losses, atol=1e-3, rtol=2e-5)
    torch.testing.assert_close(grad, plain_grad, atol=1e-6, rtol=1e-4)


def test_many_equal_logits_of_300_overflow_no_sum(device):
    logits = torch.full((1, BLOCK + 128), 300.0, device=device)
    losses, grad = loss_and_gradient(logits, torch.tensor([7], device=device), BLOCK + 100)
    assert float(losses) == pytest.approx(math.log(BLOCK + 100), abs=1e-3)
    assert float(grad[0, 7]) == pytest.approx(-1, abs=1e-3)


@pytest.mark.parametrize("target", [40, 127, 10_000_000, -1, -101])
def test_a_target_outside_of_the_vocabulary_makes_its_loss_nan_and_writes_nowhere(device, target):
    logits, targets = inputs((40, 128), torch.float32, device)
    targets[2] = target
    losses, grad = loss_and_gradient(logits, targets, 40)
    assert losses.isnan().tolist() == [False, False, True, False]
    assert grad[:, 40:].abs().max() == 0
    targets[2] = 0
    assert torch.equal(grad[[0, 1, 3]], loss_and_gradient(logits, targets, 40)[1][[0, 1, 3]])


@pytest.mark.parametrize("column", [0, BLOCK + 1])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("is_small", [False, True])
def test_a_bad_logit_makes_the_loss_of_its_token_nan_and_that_of_no_other(device, bad, column, is_small):
    logits, targets = inputs((BLOCK + 4, BLOCK + 128), torch.float32, device)
    logits[2, column] = bad
    losses = torch.empty(4, device=device)
    grad = torch.empty(logits.shape, device=device, dtype=E5M2) if is_small else logits
    cross_entropy(logits, targets, losses, vocab_size=BLOCK + 4, grad_CV=grad)
    assert losses.isnan().tolist() == [False, False, True, False]
    assert grad[2].float().isnan().any() and grad[[0, 1, 3]].float().isfinite().all()


def test_a_target_with_a_logit_of_minus_infinity_has_an_infinite_loss(device):
    logits, targets = inputs((40, 128), torch.float32, device)
    logits[0, targets[0]] = -math.inf
    losses, grad = loss_and_gradient(logits, targets, 40)
    assert losses[0] == math.inf
    assert grad[0, targets[0]] == -1


def test_one_token_of_a_vocabulary_of_one(device):
    losses, grad = loss_and_gradient(torch.full((1, 128), 3.0, device=device), torch.tensor([0], device=device), 1)
    # Powers of two are approximated on a GPU.
    assert losses.tolist() == pytest.approx([0], abs=1e-6) and grad.abs().max() <= 1e-6
