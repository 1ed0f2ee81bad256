"""The KL weight of every step, against its closed forms."""

import math

import pytest

import gristmill as gm
from gristmill.lm.models.vae.kl_schedule import KL_SHAPES, kl_weight


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
def test_the_kl_weight_is_between_0_and_the_peak(shape, total_steps):
    found = weights(total_steps, shape=shape, warmup_steps=2)
    assert all(0 <= weight <= 2.0 for weight in found)
    assert weights(total_steps, shape=shape, warmup_steps=2, peak=0.0) == [0.0] * total_steps


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": -1}, "step must be >= 0, got -1"),
        ({"peak": -0.5}, "peak must be >= 0, got -0.5"),
        ({"total_steps": 0}, "total_steps must be >= 1, got 0"),
        ({"num_cycles": 0}, "num_cycles must be >= 1, got 0"),
        ({"warmup_steps": -1}, "warmup_steps must be >= 0, got -1"),
        ({"shape": "cosine"}, "shape='cosine' is not valid. Pass one of 'constant', 'linear', 'cyclical'"),
        ({"ramp_fraction": 1.5}, "ramp_fraction must be between 0 and 1, got 1.5"),
    ],
)
def test_bad_options_of_the_kl_weight_are_named(options, message):
    with pytest.raises(gm.OptionError, match=message):
        kl_weight(**{"step": 0, "peak": 1.0, "total_steps": 10, **options})
