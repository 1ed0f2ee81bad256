"""The configuration in the report: the options that the run's model takes, and none of other models."""

import pytest

from gristmill.report.options import OF_LATENTS, OF_WINDOWS
from gristmill.report.records import read_records
from gristmill.report.summary import summarise
from recorded_runs import config, posterior_record, read_lines, write_json, write_lines, write_run


def names(folder):
    return {name for name, _ in summarise(read_records(folder)).config}


@pytest.fixture
def old(tmp_path):
    """A run folder as earlier versions wrote it, with the options of every model."""
    folder = write_run(tmp_path / "run", num_records=5)
    write_json(folder / "config.json", config(50) | dict.fromkeys(OF_LATENTS | OF_WINDOWS, 1))
    return folder


def test_an_old_folder_of_a_model_without_latents_shows_no_option_of_latents(old):
    assert names(old) == config(50).keys() | OF_WINDOWS


def test_an_old_folder_of_a_model_with_latents_shows_no_option_of_windows(old):
    write_lines(old / "metrics.jsonl", [*read_lines(old / "metrics.jsonl"), posterior_record(10)])
    assert names(old) == (config(50).keys() | OF_LATENTS) - OF_WINDOWS


def test_an_old_folder_that_has_recorded_nothing_shows_all_of_them(old):
    write_lines(old / "metrics.jsonl", [])
    assert names(old) == config(50).keys() | OF_LATENTS | OF_WINDOWS


def test_a_new_folder_keeps_every_option_even_one_that_another_model_has_too(tmp_path):
    folder = write_run(tmp_path / "run", num_records=5)
    options = config(50) | {"model": "mine", "latent_dim": 7, "context_length": 8}
    write_json(folder / "config.json", options)
    assert names(folder) == options.keys()
