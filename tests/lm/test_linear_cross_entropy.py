import pytest
import torch
from torch.nn import functional as F

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


def test_under_bfloat16_it_is_as_exact_as_the_plain_form():
    torch.manual_seed(0)
    x, weight = torch.randn(64, 32), torch.randn(48, 32) * 0.2
    targets = torch.randint(48, (64,))
    exact = F.cross_entropy((x.double() @ weight.double().T), targets)
    with torch.autocast("cpu", torch.bfloat16):
        mine = linear_cross_entropy(x, weight, targets, vocab_size=48)
        plain = F.cross_entropy((x @ weight.T).float(), targets)
    assert abs(mine - exact) <= abs(plain - exact) + 1e-3
