"""The learning rate and the KL weight of every step, against their closed forms."""

import itertools
import math

import pytest

import gristmill as gm
from gristmill.lm.training.schedules import KL_SHAPES, SHAPES, kl_weight, learning_rate


def rates(total_steps, **options):
    options = {"peak": 3.0, "warmup_steps": 0, **options}
    return [learning_rate(step, total_steps=total_steps, **options) for step in range(total_steps)]


@pytest.mark.parametrize("shape", SHAPES)
def test_warm_up_rises_evenly_from_the_first_step_to_the_peak(shape):
    assert rates(50, warmup_steps=4, shape=shape)[:4] == pytest.approx([0.75, 1.5, 2.25, 3.0])
    assert rates(50, warmup_steps=4, shape=shape)[3] == 3.0


@pytest.mark.parametrize("shape", SHAPES)
def test_without_warm_up_the_first_step_has_the_peak(shape):
    assert rates(50, shape=shape)[0] == 3.0


def test_cosine_is_half_a_cosine_from_the_peak_to_the_last_step():
    found = rates(11, final_fraction=0.1)
    expected = [0.3 + 2.7 * (1 + math.cos(math.pi * step / 10)) / 2 for step in range(11)]
    assert found == pytest.approx(expected)
    assert found[5] == pytest.approx((3.0 + 0.3) / 2)


def test_cosine_after_warm_up_begins_at_its_last_step():
    found = rates(13, warmup_steps=3, final_fraction=0.0)
    assert found[2:] == pytest.approx(rates(11, final_fraction=0.0))


def test_wsd_stays_at_the_peak_and_falls_evenly_over_the_last_fraction():
    found = rates(20, warmup_steps=2, shape="wsd", decay_fraction=0.25, final_fraction=0.4)
    assert found[:2] == [1.5, 3.0]
    assert found[2:15] == [3.0] * 13
    assert found[15:] == pytest.approx([3.0 - 1.8 * k / 5 for k in (1, 2, 3, 4, 5)])


def test_wsd_that_decays_all_the_time_begins_after_warm_up():
    found = rates(11, warmup_steps=6, shape="wsd", decay_fraction=1.0, final_fraction=0.0)
    assert found[5:] == pytest.approx([3.0, 2.4, 1.8, 1.2, 0.6, 0.0])


def test_constant_stays_at_the_peak():
    assert rates(9, warmup_steps=2, shape="constant")[1:] == [3.0] * 8


@pytest.mark.parametrize("shape", ["cosine", "wsd"])
@pytest.mark.parametrize("total_steps", [2, 3, 7, 1000])
@pytest.mark.parametrize("final_fraction", [0.0, 0.1, 1.0])
def test_the_last_step_and_all_after_it_have_the_final_value(shape, total_steps, final_fraction):
    for step in (total_steps - 1, total_steps, 10 * total_steps):
        options = {"peak": 3.0, "warmup_steps": 1, "total_steps": total_steps, "shape": shape}
        if shape == "wsd":
            options["decay_fraction"] = 0.5
        assert learning_rate(step, final_fraction=final_fraction, **options) == 3.0 * final_fraction


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_of_one_step_and_one_of_warm_up_alone_end_at_the_peak(shape):
    assert rates(1, shape=shape) == [3.0]
    assert rates(4, warmup_steps=4, shape=shape) == pytest.approx([0.75, 1.5, 2.25, 3.0])


@pytest.mark.parametrize("shape", ["cosine", "wsd"])
def test_after_the_peak_it_never_rises(shape):
    found = rates(997, warmup_steps=10, shape=shape)
    assert all(later <= earlier for earlier, later in itertools.pairwise(found[9:]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": -1}, "step=-1 is negative"),
        ({"total_steps": 0}, "total_steps=0 is too small"),
        ({"warmup_steps": 11}, r"warmup_steps=11 does not lie in the 10 steps"),
        ({"warmup_steps": -1}, "warmup_steps=-1"),
        ({"shape": "linear"}, "shape='linear' is not known. Pass one of 'cosine', 'wsd', 'constant'"),
        ({"final_fraction": 1.5}, "final_fraction=1.5 is not a fraction"),
        ({"decay_fraction": -0.1}, "decay_fraction=-0.1 is not a fraction"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(gm.OptionError, match=message):
        learning_rate(**{"step": 0, "peak": 1.0, "warmup_steps": 0, "total_steps": 10, **options})


# The KL weight


def weights(total_steps, **options):
    return [kl_weight(step, total_steps=total_steps, **{"peak": 2.0, **options}) for step in range(total_steps)]


def test_a_constant_kl_weight_is_the_peak_from_the_first_step():
    assert weights(5, shape="constant", warmup_steps=3) == [2.0] * 5


def test_a_linear_kl_weight_rises_evenly_from_0_to_the_peak_and_stays():
    assert weights(8, shape="linear", warmup_steps=4) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0]
    assert weights(3, shape="linear", warmup_steps=0) == [2.0] * 3
    assert weights(3, shape="linear", warmup_steps=6) == pytest.approx([0.0, 1 / 3, 2 / 3])


def test_a_cyclical_kl_weight_begins_each_cycle_at_0_and_spends_the_rest_of_it_at_the_peak():
    assert weights(16, shape="cyclical", num_cycles=2) == [0.0, 0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0] * 2
    assert weights(8, shape="cyclical", num_cycles=1, ramp_fraction=1.0) == [step / 4 for step in range(8)]
    assert weights(8, shape="cyclical", num_cycles=2, ramp_fraction=0.0) == [2.0] * 8


def test_cycles_that_do_not_divide_the_run_are_not_one_too_many():
    found = weights(1001, shape="cyclical", num_cycles=7)
    drops = [step for step in range(1, 1001) if found[step] < found[step - 1]]
    assert len(drops) == 6
    assert drops == [math.ceil(1001 * cycle / 7) for cycle in range(1, 7)]
    assert found[-1] == 2.0


@pytest.mark.parametrize("shape", KL_SHAPES)
def test_after_the_run_the_kl_weight_is_the_peak(shape):
    for step in (100, 101, 10_000):
        assert kl_weight(step, peak=0.7, shape=shape, warmup_steps=10, total_steps=100) == 0.7


@pytest.mark.parametrize("shape", KL_SHAPES)
@pytest.mark.parametrize("total_steps", [1, 3, 97])
def test_the_kl_weight_lies_between_0_and_the_peak(shape, total_steps):
    found = weights(total_steps, shape=shape, warmup_steps=2)
    assert all(0 <= weight <= 2.0 for weight in found)
    assert weights(total_steps, shape=shape, warmup_steps=2, peak=0.0) == [0.0] * total_steps


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": -1}, "step=-1 is negative"),
        ({"peak": -0.5}, "peak=-0.5 is out of range"),
        ({"total_steps": 0}, "total_steps=0 is too small"),
        ({"num_cycles": 0}, "num_cycles=0 is too small"),
        ({"warmup_steps": -1}, "warmup_steps=-1 is negative"),
        ({"shape": "cosine"}, "shape='cosine' is not known. Pass one of 'constant', 'linear', 'cyclical'"),
        ({"ramp_fraction": 1.5}, "ramp_fraction=1.5 is not a fraction"),
    ],
)
def test_bad_options_of_the_kl_weight_are_named(options, message):
    with pytest.raises(gm.OptionError, match=message):
        kl_weight(**{"step": 0, "peak": 1.0, "total_steps": 10, **options})
