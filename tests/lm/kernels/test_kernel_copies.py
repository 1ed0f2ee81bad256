"""Copies of weights in bfloat16 and in 8-bit floats: none may be older than its weight."""

import pytest
import torch
from torch import nn

from gristmill.lm.kernels.float8 import E4M3
from gristmill.lm.kernels.weight_copies import WeightCopies
from lm.kernels.comparing import bits, site


@pytest.fixture
def weight(device):
    return nn.Parameter(torch.randn(16, 32, device=device))


@pytest.fixture
def copies(weight):
    found = WeightCopies([weight])
    found.refresh()
    return found


def change_in_place(weight):
    with torch.no_grad():
        weight.add_(1)


def change_by_an_optimizer(weight):
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.1).step()


def change_by_loading(weight):
    module = nn.Module()
    module.weight = weight
    module.load_state_dict({"weight": torch.ones_like(weight)})


def change_by_an_initialiser(weight):
    nn.init.normal_(weight)


@pytest.mark.parametrize(
    "change", [change_in_place, change_by_an_optimizer, change_by_loading, change_by_an_initialiser]
)
def test_copies_follow_a_weight_that_is_changed(weight, copies, device, change):
    small = site(E4M3, device)
    old = copies.float8(weight, small)
    change(weight)
    copies.refresh()
    copies.forget_float8()  # as every forward pass does
    assert torch.equal(copies[weight], weight.bfloat16())
    rows, columns = copies.float8(weight, small)
    assert not torch.equal(bits(rows), bits(old[0]))
    assert torch.equal(bits(rows), bits(columns).t())


def test_copies_follow_a_change_that_torch_cannot_see_after_the_step(weight, copies):
    weight.data.add_(1)
    copies.forget()
    copies.refresh()
    assert torch.equal(copies[weight], weight.bfloat16())


def test_copies_of_all_weights_are_valid_for_one_use(weight, copies):
    own, average = weight.data, torch.ones_like(weight)
    weight.data = average
    copies.refresh(all=True)
    assert (copies[weight] == 1).all()
    weight.data = own
    copies.refresh()
    assert torch.equal(copies[weight], weight.bfloat16())


def test_an_unchanged_weight_is_copied_once_for_all_micro_batches(weight, copies, device):
    copies[weight].fill_(7)
    copies.refresh()
    assert (copies[weight] == 7).all()


def test_both_products_of_a_pass_read_the_same_8_bit_floats(weight, copies, device):
    one = copies.float8(weight, site(E4M3, device))
    assert copies.float8(weight, site(E4M3, device))[0] is one[0]
    copies.forget_float8()
    assert copies.float8(weight, site(E4M3, device))[0] is not one[0]


def test_a_written_copy_is_kept_for_one_step_and_made_again_after_the_next(weight, copies, device):
    copies.float8(weight, site(E4M3, device))
    copies.buffer(weight).fill_(7)
    copies.note_written([weight])
    copies.forget()
    copies.refresh()
    assert (copies[weight] == 7).all()
    copies.forget()
    copies.refresh()
    assert torch.equal(copies[weight], weight.bfloat16())


def test_8_bit_floats_of_a_written_copy_are_made_again_at_once(weight, copies, device):
    old, _ = copies.float8(weight, site(E4M3, device))
    copies.buffer(weight).fill_(7)
    copies.note_written([weight])
    assert not torch.equal(bits(copies.float8(weight, site(E4M3, device))[0]), bits(old))


def test_weights_that_are_not_copied_are_known(weight, copies):
    assert copies.has(weight)
    assert not copies.has(nn.Parameter(weight.detach()))
