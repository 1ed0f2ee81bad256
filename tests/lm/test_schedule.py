"""Learning rate of every step compared with closed forms, and registered schedules."""

import itertools
import math

import pytest

import gristmill as gm
from gristmill.lm.training.schedules import SCHEDULES, check_schedule, learning_rate, register_schedule

SHAPES = ("cosine", "wsd", "constant")


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
        ({"step": -1}, "step must be >= 0, got -1"),
        ({"total_steps": 0}, "total_steps must be >= 1, got 0"),
        ({"warmup_steps": 11}, "warmup_steps=11 is more than the 10 steps of the run. Pass warmup_steps=0.02, a frac"),
        ({"warmup_steps": -1}, "warmup_steps must be >= 0, got -1"),
        ({"shape": "linear"}, "shape='linear' is not valid. Pass one of 'cosine', 'wsd', 'constant'"),
        ({"final_fraction": 1.5}, "final_fraction must be between 0 and 1, got 1.5"),
        ({"decay_fraction": -0.1}, "decay_fraction must be between 0 and 1, got -0.1"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(gm.OptionError, match=message):
        learning_rate(**{"step": 0, "peak": 1.0, "warmup_steps": 0, "total_steps": 10, **options})


# Whether a warm-up fits


@pytest.mark.parametrize(("warmup_steps", "total_steps"), [(0, 1), (500, 500), (0.02, 1), (1.0, 3), (0.5, 500)])
def test_a_warm_up_within_the_run_is_fine(warmup_steps, total_steps):
    check_schedule(warmup_steps, total_steps)


def test_a_warm_up_longer_than_the_run_says_what_to_pass():
    with pytest.raises(gm.OptionError, match=r"^warmup_steps=700 is more than the 500 steps .*warmup_steps <= 500"):
        check_schedule(700, 500)


# Registered schedules


@pytest.fixture
def schedules(monkeypatch):
    """The registry, restored after each test."""
    monkeypatch.setattr(SCHEDULES, "_entries", dict(SCHEDULES._entries))
    return SCHEDULES


def inverse_sqrt(step, *, warmup_steps):
    return min((step + 1) / warmup_steps, math.sqrt(warmup_steps / (step + 1)))


def test_a_registered_schedule_scales_the_peak(schedules):
    register_schedule("inverse-sqrt", inverse_sqrt)
    assert rates(50, warmup_steps=4, shape="inverse-sqrt")[:4] == [0.75, 1.5, 2.25, 3.0]
    assert rates(50, warmup_steps=4, shape="inverse-sqrt")[15] == 1.5
    assert list(schedules) == [*SHAPES, "inverse-sqrt"]


def test_a_registered_schedule_gets_all_numbers_of_the_run(schedules):
    register_schedule("all", lambda step, **options: sum(options.values()) + step)
    found = learning_rate(
        1, peak=2.0, warmup_steps=3, total_steps=10, shape="all", final_fraction=0.5, decay_fraction=0.25
    )
    assert found == 2.0 * (1 + 3 + 10 + 0.5 + 0.25)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, None, "1", True])
def test_a_schedule_that_returns_no_scale_is_named(schedules, value):
    register_schedule("odd", lambda step: value)
    with pytest.raises(gm.OptionError, match=r"schedule 'odd' returned .* for step=0. Return a number >= 0"):
        rates(3, shape="odd")


def test_a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced(schedules):
    register_schedule("mine", inverse_sqrt)
    register_schedule("mine", inverse_sqrt)
    for name in ("mine", "cosine"):
        with pytest.raises(gm.OptionError, match=f"schedule '{name}' already exists.*overwrite=True"):
            register_schedule(name, lambda step: 1.0)
    register_schedule("cosine", lambda step: 0.5, overwrite=True)
    assert rates(3) == [1.5] * 3


@pytest.mark.parametrize("name", ["", "Mine", "my schedule", "1st", "-x", "a.b", None])
def test_a_name_that_is_no_name_is_refused(schedules, name):
    with pytest.raises(gm.OptionError, match=r"is not a valid name of a schedule. Use lowercase letters"):
        register_schedule(name, inverse_sqrt)
    assert list(schedules) == [*SHAPES]


def test_only_functions_are_schedules(schedules):
    with pytest.raises(gm.OptionError, match=r"is of type float. Pass a function"):
        register_schedule("half", 0.5)
