"""The loss without all logits in memory: loss and gradients compared with the plain form in float64."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from gristmill.lm.models.linear_cross_entropy import linear_cross_entropy


@pytest.mark.parametrize("num_parts", [1, 3, 8])
@pytest.mark.parametrize("vocab_size", [40, 33])
def test_loss_and_gradients_are_those_of_the_plain_form(num_parts, vocab_size):
    torch.manual_seed(0)
    x = torch.randn(50, 16, requires_grad=True)
    weight = torch.randn(40, 16, requires_grad=True)
    targets = torch.randint(vocab_size, (50,))
    targets[::7] = -100
    loss = linear_cross_entropy(x, weight, targets, vocab_size=vocab_size, num_parts=num_parts)
    (loss * 3).backward()
    got = loss.detach(), x.grad.clone(), weight.grad.clone()
    x.grad = weight.grad = None
    plain = F.cross_entropy(x @ weight[:vocab_size].T, targets)
    (plain * 3).backward()
    for mine, theirs in zip(got, (plain.detach(), x.grad, weight.grad), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert weight.grad[vocab_size:].abs().sum() == 0 == got[2][vocab_size:].abs().sum()


def test_huge_logits_and_no_targets_at_all():
    x, weight = torch.eye(4) * 1000, torch.eye(4) * 1000
    assert linear_cross_entropy(x, weight, torch.arange(4), vocab_size=4) == 0
    assert linear_cross_entropy(x, weight, torch.full((4,), -100), vocab_size=4) == 0
    assert torch.isfinite(linear_cross_entropy(x, weight, torch.tensor([1, 2, 3, 0]), vocab_size=4))


HALVES = [torch.bfloat16, torch.float16]


def gradients(loss_of, x, weight):
    """The gradients of a loss by copies of x and weight."""
    x, weight = x.detach().clone().requires_grad_(), weight.detach().clone().requires_grad_()
    loss = loss_of(x, weight)
    loss.backward()
    return loss.detach(), x.grad, weight.grad


def relative_error(found, exact):
    return (torch.linalg.vector_norm(found.double() - exact) / torch.linalg.vector_norm(exact)).item()


@pytest.mark.parametrize("dtype", HALVES)
def test_in_half_precision_loss_and_gradients_are_as_exact_as_those_of_the_plain_form(dtype):
    torch.manual_seed(0)
    x, weight = torch.randn(512, 64).to(dtype).float(), torch.randn(256, 64).to(dtype).float()
    targets = torch.where(torch.arange(512) % 3 == 0, torch.randint(256, (512,)), (x @ weight.T).argmax(-1))

    def mine(x, weight):
        with torch.autocast("cpu", dtype):
            return linear_cross_entropy(x, weight, targets, vocab_size=256)

    def plain(x, weight):
        with torch.autocast("cpu", dtype):
            return F.cross_entropy((x @ weight.T).float(), targets)

    exact = gradients(lambda x, weight: F.cross_entropy(x @ weight.T, targets), x.double(), weight.double())
    for found, other, oracle in zip(gradients(mine, x, weight), gradients(plain, x, weight), exact, strict=True):
        assert relative_error(found, oracle) <= 1.1 * relative_error(other, oracle) + 1e-4


@pytest.mark.parametrize("dtype", HALVES)
def test_a_target_of_high_probability_keeps_its_gradient_in_half_precision(dtype):
    # Logits that are exact: 0, and 7 for the target, whose probability of 0.9982 bfloat16 rounds to 1.
    x, weight = torch.eye(8) * 7, torch.eye(8)[:4]
    targets = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])
    weight = torch.cat([weight[:, :4], weight[:, :4]], dim=1)
    exact = gradients(lambda x, weight: F.cross_entropy(x @ weight.T, targets), x.double(), weight.double())
    _, *found = gradients(lambda x, w: linear_cross_entropy(x, w, targets, vocab_size=4), x.to(dtype), weight.to(dtype))
    for mine, oracle in zip(found, exact[1:], strict=True):
        torch.testing.assert_close(mine.double(), oracle, rtol=0.02, atol=0)


def test_float16_keeps_small_gradients_of_many_tokens_for_a_scaled_loss():
    # 1 / N times a probability of 1 / V is 6e-9, which underflows to 0 in float16 unless it is scaled first.
    torch.manual_seed(0)
    x, weight, targets = torch.randn(8192, 8) * 0.1, torch.randn(2048, 8) * 0.1, torch.zeros(8192, dtype=torch.int64)
    scale = 2.0**14

    def scaled(x, weight):
        return linear_cross_entropy(x, weight, targets, vocab_size=2048) * scale

    exact = gradients(lambda x, w: F.cross_entropy(x @ w.T, targets) * scale, x.double(), weight.double())[2][1:]
    found = gradients(scaled, x.half(), weight.half())[2][1:]
    assert relative_error(found, exact) < 0.01


def test_without_gradients_only_the_product_of_the_forward_pass_is_computed():
    x, weight = torch.randn(40, 16), torch.nn.Parameter(torch.randn(24, 16))
    targets, product = torch.randint(24, (40,)), 2 * 40 * 24 * 16

    def flops(x, weight):
        with FlopCounterMode(display=False) as counter:
            linear_cross_entropy(x, weight, targets, vocab_size=24)
        return counter.get_total_flops()

    with torch.no_grad():
        assert flops(x, weight) == product
    assert flops(x, weight.detach()) == product
    assert flops(x, weight) == 2 * product
    assert flops(x.requires_grad_(), weight) == 3 * product
