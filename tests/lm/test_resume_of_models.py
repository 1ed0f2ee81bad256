"""Resuming runs of any model: model options and defaults, YAML files, a run that was set aside."""

import pytest

import gristmill as gm
from gristmill.lm.training.config import TrainConfig
from gristmill.lm.training.replacing import Replacement
from lm.tiny_runs import TINY, train

VAE = {name: value for name, value in TINY.items() if name != "context_length"}
VAE |= {"model": "vae", "max_sequence_length": 24, "latent_dim": 4, "plot_frequency": 0}
VAE |= {"batch_size": 2, "max_steps": 4}


@pytest.fixture
def vae_run(tiny_shards, tmp_path):
    gm.lm.train(tiny_shards, out=tmp_path / "run", progress=None, **VAE)
    return tmp_path / "run"


def resumed(data, run, **options):
    return gm.lm.train(data, out=run, resume=True, progress=None, **options)


def test_the_defaults_of_a_model_do_not_go_over_the_saved_options(tiny_shards, vae_run):
    assert resumed(tiny_shards, vae_run, model="vae", max_steps=6).num_steps == 6


def test_an_option_of_the_saved_model_needs_no_model_beside_it(tiny_shards, vae_run):
    assert resumed(tiny_shards, vae_run, window_size=7, max_steps=5).num_steps == 5


def test_the_command_line_resumes_with_the_saved_batch(tiny_shards, vae_run, capsys):
    from gristmill.cli import main

    arguments = ["train-model", str(tiny_shards), "-o", str(vae_run), "--resume", "--max-steps", "6"]
    assert main([*arguments, "--progress", "none"]) == 0
    assert "step-000006" in capsys.readouterr().out


def test_a_file_of_options_is_for_the_model_that_is_named_beside_it(tiny_shards, tmp_path):
    (tmp_path / "options.yaml").write_text("latent_dim: 3\nmax_steps: 2\n")
    options = {name: value for name, value in VAE.items() if name not in ("latent_dim", "max_steps")}
    gm.lm.train(tiny_shards, out=tmp_path / "run", config=tmp_path / "options.yaml", progress=None, **options)
    assert gm.lm.load_vae(tmp_path / "run", device="cpu")[0].config.latent_dim == 3


def test_a_run_that_a_killed_overwrite_set_aside_is_resumed_with_its_options(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=4)
    Replacement(tmp_path / "run", overwrite=True).set_aside()  # and the process is killed here
    assert resumed(tiny_shards, tmp_path / "run", max_steps=6).num_steps == 6


def test_a_longer_run_by_epochs_keeps_its_warm_up(tiny_shards, tmp_path):
    train(tiny_shards, tmp_path / "run", max_steps=4, warmup_steps=0.5)
    assert resumed(tiny_shards, tmp_path / "run", warmup_steps=0.5, epochs=0.2).num_steps > 4


def test_the_defaults_of_a_model_are_beneath_presets_and_options():
    assert TrainConfig.from_options({"model": "vae"}).batch_size == 4
    assert TrainConfig.from_options({"model": "vae", "batch_size": 9}).batch_size == 9
    assert TrainConfig.from_options({}, preset="vae-low-memory").gradient_accumulation_steps == 2
