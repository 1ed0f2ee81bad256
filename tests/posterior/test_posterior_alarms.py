"""Alarms: when they are raised and cleared, and their messages."""

import json
import re

import pytest

from gristmill.lm.training.config import options_of_model
from gristmill.posterior.alarms import KINDS, Alarms
from posterior.posteriors import metrics

COLLAPSED = {"mutual_information": 0.01, "active_units": 0, "active_units_strict": 0, "kl": 0.02, "gap_shuffled": 0.0}
BETWEEN = {"mutual_information": 0.2, "active_units": 3}
FEW = {"active_units": 2, "mutual_information": 1.5}
IGNORED = {"kl": 8.0, "gap_shuffled": 0.05}
FAR = {"aggregated_kl_floor": 20.0}
HEALTHY = {}
NO_GAP = {"gap_shuffled": None}


def changes(*figures):
    """The changes at each measurement with these metrics, as "+collapse" or "-collapse"."""
    alarms = Alarms()
    sign = {"raised": "+", "cleared": "-"}
    return [
        [sign[change.change] + change.kind for change in alarms.look(metrics(step, **each))]
        for step, each in enumerate(figures)
    ]


def together(looks):
    return [change for look in looks for change in look]


@pytest.mark.parametrize(
    ("kind", "bad"), [("collapse", COLLAPSED), ("few_units", FEW), ("ignored", IGNORED), ("prior", FAR)]
)
def test_one_bad_window_raises_nothing_and_two_in_a_row_raise_and_two_good_ones_clear(kind, bad):
    assert changes(bad, HEALTHY, bad, HEALTHY) == [[], [], [], []]
    assert changes(HEALTHY, bad, bad, bad) == [[], [], [f"+{kind}"], []]
    assert changes(bad, bad, HEALTHY, bad, HEALTHY, HEALTHY) == [[], [f"+{kind}"], [], [], [], [f"-{kind}"]]


def test_between_the_thresholds_nothing_changes():
    assert changes(COLLAPSED, BETWEEN, COLLAPSED) == [[], [], []]
    assert changes(COLLAPSED, COLLAPSED, BETWEEN, BETWEEN, BETWEEN) == [[], ["+collapse"], [], [], []]
    assert changes(COLLAPSED, COLLAPSED, HEALTHY, BETWEEN, HEALTHY) == [[], ["+collapse"], [], [], []]


def test_looks_without_a_gap_count_neither_way():
    assert changes(IGNORED, NO_GAP, NO_GAP, IGNORED) == [[], [], [], ["+ignored"]]


def test_a_healthy_posterior_raises_nothing():
    assert not any(changes(*[HEALTHY] * 20))


def test_a_collapsed_posterior_raises_one_alarm_not_three():
    assert together(changes(*[COLLAPSED] * 10)) == ["+collapse"]


def test_a_few_units_with_little_variance_are_still_a_collapse():
    assert changes(*[{"mutual_information": 0.05, "active_units": 2, "active_units_strict": 0}] * 2)[1] == ["+collapse"]


def test_a_single_dimension_in_use_is_no_collapse():
    one = {"kl_per_dimension": (0.4,), "active_units": 1, "mutual_information": 0.05}
    assert not any(changes(*[one] * 4))


def test_too_few_posteriors_say_nothing():
    assert not any(changes(*[{**COLLAPSED, "num_samples": 4}] * 4))


def test_figures_that_are_not_numbers_say_that_and_nothing_else():
    unknown = dict.fromkeys(
        ("kl", "mutual_information", "active_units", "aggregated_kl", "aggregated_kl_floor", "gap_shuffled")
    )
    assert changes(*[unknown] * 4) == [[], ["+not_finite"], [], []]


def test_while_the_kl_weight_rises_the_distance_from_the_prior_is_not_judged():
    rising = [{**FAR, **IGNORED, "kl_weight": step / 10} for step in range(10)]
    assert not any(changes(*rising))
    steady = [{**FAR, "kl_weight": 1.0}] * 4
    assert together(changes(*rising, *steady)) == ["+prior"]
    collapsed = [{**COLLAPSED, "kl_weight": step / 10} for step in range(3)]
    assert together(changes(*collapsed)) == ["+collapse"]


BAD = (("collapse", COLLAPSED), ("few_units", FEW), ("ignored", IGNORED), ("prior", FAR))


def test_every_message_names_its_figure_and_the_options_that_help_in_their_order():
    options = {
        "collapse": [
            "bag_of_words_weight=1",
            "free_bits=0.25 and free_bits_mode='dimension'",
            "word_dropout=0.5",
            "batch_norm_mu=0.5",
        ],
        "few_units": ["free_bits=0.1 and free_bits_mode='dimension'", "batch_norm_mu=0.5", "latent_dim=8"],
        "ignored": ["word_dropout=0.3", "bag_of_words_weight", "free_bits_mode='dimension'"],
        "prior": ["kl_weight", "kl_schedule='linear'", "free_bits", "latent_dim"],
    }
    figures = {"collapse": "0.01 nats", "few_units": "2 of 30 units", "ignored": "0.05 nats", "prior": "20.0 nats"}
    assert {*options, "not_finite"} == set(KINDS)  # which has no metric
    for kind, bad in BAD:
        alarms = Alarms("options")
        alarms.look(metrics(1, **bad))
        (change,) = alarms.look(metrics(2, **bad))
        assert alarms.active[0].message == change.message and alarms.active[0].step == 2
        assert figures[kind] in change.message
        places = [change.message.index(option) for option in options[kind]]
        assert places == sorted(places)


def test_in_a_users_own_loop_no_message_names_an_option_of_the_trainer():
    options = set(options_of_model("vae"))
    not_finite = {"kl": None}
    for kind, bad in (*BAD, ("not_finite", not_finite)):
        alarms = Alarms()
        alarms.look(metrics(1, **bad))
        (change,) = (change for change in alarms.look(metrics(2, **bad)) if change.kind == kind)
        words = set(re.findall(r"[a-z_]*_[a-z_]*|[a-z_]+(?==)", change.message))
        assert not words & options, change.message
        assert "What helps, best first: " in change.message


def test_general_advice_names_what_to_do_in_the_order_of_the_options():
    concepts = {
        "collapse": [
            "bag of words",
            "free bits of 0.25 nats per dimension",
            "word dropout",
            "batch norm",
            "more slowly",
        ],
        "few_units": ["free bits of 0.1 nats per dimension", "batch norm", "cyclical", "hiding", "8 latent dimensions"],
        "ignored": ["word dropout", "words of a sequence from its latents", "per dimension", "KL weight"],
        "prior": ["KL weight (1 is the evidence lower bound)", "linear", "fewer free bits", "latent dimensions"],
    }
    for kind, bad in BAD:
        alarms = Alarms("general")
        alarms.look(metrics(1, **bad))
        (change,) = alarms.look(metrics(2, **bad))
        advice = change.message.partition("What helps, best first: ")[2]
        places = [advice.index(concept) for concept in concepts[kind]]
        assert places == sorted(places)


def test_alarms_resume_from_their_state():
    alarms, again = Alarms(), Alarms()
    for step in (1, 2, 3):
        alarms.look(metrics(step, **COLLAPSED))
    alarms.look(metrics(4))
    again.load(json.loads(json.dumps(alarms.state())))
    assert again.active == alarms.active
    assert [change.change for change in again.look(metrics(5))] == ["cleared"]
    assert again.active == ()


def test_the_last_look_raises_by_itself_and_clears_nothing():
    alarms = Alarms()
    assert [change.kind for change in alarms.look(metrics(1, **COLLAPSED), is_last=True)] == ["collapse"]
    assert alarms.look(metrics(2, **HEALTHY), is_last=True) == ()
    assert [alarm.kind for alarm in alarms.active] == ["collapse"]


def test_the_gap_of_a_single_sequence_raises_nothing_by_itself():
    assert Alarms().look(metrics(1, **IGNORED, gap_shuffled_error=None), is_last=True) == ()
    (change,) = Alarms().look(metrics(1, **IGNORED, gap_shuffled_error=0.01), is_last=True)
    assert change.kind == "ignored"
