"""The options of public functions: the same names, types and defaults for type checkers, help() and at run time."""

from __future__ import annotations

import inspect
import typing

import pytest

import gristmill as gm
from gristmill.lm.models.registry import BUILT_IN, MODELS
from gristmill.lm.models.vae.texts import Choice
from gristmill.lm.option_types import option_fields, option_meanings
from gristmill.lm.training.config import OTHER_NAMES, TrainConfig, options_of_model
from gristmill.lm.training.options import TrainOptions, train_defaults
from gristmill.posterior.monitor import MonitorOptions

KINDS = [TrainConfig, *(MODELS[name].config for name in sorted(BUILT_IN))]


def test_train_options_are_the_fields_of_the_config_with_their_types():
    hints = {name: hint for kind in KINDS for name, hint in typing.get_type_hints(kind).items()}
    named = {name for kind in KINDS for name in option_fields(kind)}
    expected = {name: hints[name] for name in named} | {"model": str | gm.lm.ModelConfig}
    assert typing.get_type_hints(TrainOptions) == expected


def test_an_option_that_two_models_have_is_the_same_option():
    """A keyword of train() cannot have two defaults."""
    defaults = [{name: field.default for name, field in option_fields(kind).items()} for kind in KINDS[1:]]
    for name in set.intersection(*map(set, defaults)):
        assert len({str(of_kind[name]) for of_kind in defaults}) == 1


def test_monitor_options_are_the_arguments_of_the_monitor():
    init = gm.posterior.PosteriorMetricsMonitor.__init__
    hints = {name: kind for name, kind in typing.get_type_hints(init).items() if name != "return"}
    assert typing.get_type_hints(MonitorOptions) == hints


def test_help_shows_every_option_of_train_with_its_default_and_meaning():
    parameters = inspect.signature(gm.lm.train).parameters
    for name, default in train_defaults().items():
        assert parameters[name].default == default
    for kind in KINDS:
        for name in option_fields(kind):
            assert f"\n{name}: {option_meanings(kind)[name][:40]}" in gm.lm.train.__doc__
    assert "options" not in parameters


def test_every_name_of_another_trainer_leads_to_an_option():
    assert (
        set(OTHER_NAMES.values()) <= options_of_model("gpt").keys()
        and not OTHER_NAMES.keys() & options_of_model("gpt").keys()
    )


@pytest.mark.parametrize(
    ("wrong", "meant"), [("max_step", "max_steps"), ("lr", "learning_rate"), ("overwrit", "overwrite")]
)
def test_a_misspelled_option_of_train_is_a_type_error_with_the_nearest_name(wrong, meant, tmp_path):
    with pytest.raises(TypeError, match=rf"train\(\) got an unexpected .* '{wrong}'. Did you mean '{meant}'\?"):
        gm.lm.train(tmp_path / "shards", out=tmp_path / "run", **{wrong: 1})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("sample_texts", []), ("reconstruct_texts", [["a"]]), ("interpolate_texts", ["a", "b"])],
)
def test_a_misspelled_choice_is_a_type_error_before_the_run_is_read(name, arguments, tmp_path):
    function = getattr(gm.lm, name)
    with pytest.raises(TypeError, match=r"'temprature'. Did you mean 'temperature'"):
        function(tmp_path / "no run", *arguments, temprature=1)
    assert set(Choice.__annotations__) <= inspect.signature(function).parameters.keys()


def test_a_misspelled_option_of_the_callback_is_a_type_error_with_the_nearest_name():
    with pytest.raises(TypeError, match=r"'windowsize'. Did you mean 'window_size'"):
        gm.posterior.PosteriorMetricsCallback(windowsize=3)


def test_the_old_name_of_from_options_works_and_names_the_new_one():
    with pytest.warns(DeprecationWarning, match=r"TrainConfig.of is deprecated. Call TrainConfig.from_options"):
        assert TrainConfig.of({"max_steps": 3}) == TrainConfig.from_options({"max_steps": 3})
