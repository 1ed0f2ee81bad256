"""Scales of 8-bit floats from the largest numbers of the last step, and their state in checkpoints."""

import math

import pytest
import torch

import gristmill as gm
from gristmill.lm.kernels.float8 import quantized
from gristmill.lm.kernels.scales import Scales

KINDS = {"x": "activation", "h": "product", "w": "weight", "g": "gradient"}


def scales(device, **options):
    return Scales(KINDS, device=device, **{"num_targets": 32, **options})


def note(found, device, **largest):
    for name, number in largest.items():
        found[name].largest.fill_(number)


def test_the_largest_number_of_a_step_gets_its_share_of_the_range_in_the_next(device):
    found = scales(device)
    note(found, device, x=7.0, h=0.5, w=2.0, g=1e-3)
    found.update()
    shares = {name: float(found[name].scale) for name in KINDS}
    assert shares == pytest.approx({"x": 224 / 7, "h": 224 / 0.5, "w": 440 / 2, "g": 57344 / 4 / 1e-3})
    for name in KINDS:
        assert found[name].inverse == 1 / found[name].scale
        assert found[name].largest == 0


def test_a_kernel_records_where_update_reads(device):
    found = scales(device)
    quantized(torch.tensor([[1.0, -14.0]], device=device), found["x"])
    found.update()
    assert found["x"].scale == 16


@pytest.mark.parametrize("largest", [0.0, math.inf, math.nan])
def test_a_tensor_that_was_zero_or_not_finite_keeps_its_scale(device, largest):
    found = scales(device)
    note(found, device, x=7.0)
    found.update()
    note(found, device, x=largest, w=2.0)
    found.update()
    assert found["x"].scale == 32 and found["w"].scale == 220
    assert found["x"].largest == 0


def test_the_scale_of_a_tiny_tensor_and_its_inverse_are_finite(device):
    found = scales(device)
    note(found, device, x=1e-45, g=1e-40)
    found.update()
    for name in KINDS:
        assert found[name].scale.isfinite() and found[name].inverse > 0


def test_the_first_scale_of_gradients_counts_that_the_loss_is_a_mean(device):
    assert scales(device, num_targets=64)["g"].scale == 2 * scales(device, num_targets=32)["g"].scale
    assert scales(device, num_targets=64)["x"].scale == scales(device, num_targets=32)["x"].scale


def test_scales_are_calibrated_after_two_passes(device):
    found = scales(device)
    states = []
    for _ in range(3):
        states.append(found.is_calibrated)
        found.update()
    assert states == [False, False, True]


def test_a_restored_state_has_the_same_bits(device):
    one, other = scales(device), scales(device)
    note(one, device, x=1 / 3, h=math.pi, w=0.1, g=1e-7)
    one.update()
    note(other, device, x=5.0)
    other.load_state(one.state())
    assert other.state() == one.state()
    assert other.is_calibrated
    for name in KINDS:
        assert torch.equal(one[name].scale, other[name].scale) and torch.equal(one[name].inverse, other[name].inverse)
        assert other[name].largest == 0


@pytest.mark.parametrize("value", [None, 0.0, -1.0, math.nan, math.inf, "8", True, [8.0], 1e39, 1e-46])
def test_a_checkpoint_with_an_impossible_scale_is_an_error_with_its_name(device, value):
    found = scales(device)
    before = found.state()
    with pytest.raises(gm.CheckpointError, match="'h'"):
        found.load_state({**before, "h": value})
    assert found.state() == before


@pytest.mark.parametrize("state", [{}, {"x": 1.0}, {"other": 1.0}, [], "scales", None])
def test_a_checkpoint_without_all_scales_is_an_error(device, state):
    with pytest.raises(gm.CheckpointError, match="no valid scale"):
        scales(device).load_state(state)


def test_each_number_lies_at_its_own_16_bytes(device):
    found = scales(device)
    addresses = [tensor.data_ptr() for name in KINDS for tensor in (found[name].scale, found[name].inverse)]
    assert all(address % 16 == 0 for address in addresses)
    assert len(set(addresses)) == len(addresses)
