"""gristmill train-model --dry-run, and gm.lm.plan."""

import json
from pathlib import Path

import pytest

import gristmill as gm

pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")

from gristmill.lm.training import dry_run
from lm.tiny_runs import build_shards

TINY = {"context_length": 16, "num_layers": 2, "num_heads": 2, "d_model": 32, "batch_size": 4, "device": "cpu"}
FLAGS = [f"--{name}={value}" for name, value in TINY.items()]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return build_shards(tmp_path_factory.mktemp("dry") / "shards")


def rows_of(out):
    return dict(line.strip().split("  ", 1) for line in out.splitlines())


def files_in(folder):
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


def test_a_dry_run_shows_what_the_run_then_does_and_writes_nothing(gristmill, shards, tmp_path):
    arguments = ["train-model", shards, "-o", tmp_path / "run", *FLAGS, "--max_steps", 6, "--progress", "none"]
    before = files_in(tmp_path)
    code, out, err = gristmill(*arguments, "--dry-run")
    assert (code, err) == (0, "")
    assert files_in(tmp_path) == before and not (tmp_path / "run").exists()
    planned = {name: value.strip() for name, value in rows_of(out).items()}
    result = gm.lm.train(shards, out=tmp_path / "run", max_steps=6, progress=None, **TINY)
    assert planned["parameters"] == f"{result.num_parameters:,}"
    assert (planned["steps"], planned["tokens"]) == ("6", f"{result.num_tokens:,}")
    assert planned["time"].startswith("about ")
    assert planned["dry run"] == "nothing was written"


def test_steps_and_epochs_follow_from_the_length_that_is_asked_for(shards):
    num_tokens = gm.Shards(shards).num_tokens
    for number in (1, 3):
        plan = gm.lm.plan(shards, epochs=number, **TINY)
        assert plan.num_steps == number * num_tokens // 64
        assert plan.num_tokens == plan.num_steps * 64
        assert plan.epochs == pytest.approx(number, abs=0.05)
        assert plan.config.max_steps == plan.num_steps


def test_memory_counts_weights_gradients_and_both_moments_of_adamw(shards):
    plan = gm.lm.plan(shards, max_steps=5, **TINY)
    assert plan.weight_bytes == plan.gradient_bytes == 4 * plan.num_parameters
    # AdamW keeps two numbers for each weight, and a count of steps for each tensor.
    assert 0 <= plan.optimizer_bytes - 2 * plan.weight_bytes <= 4 * 100
    assert plan.memory_bytes == sum(
        (plan.weight_bytes, plan.gradient_bytes, plan.optimizer_bytes, plan.activation_bytes)
    )


def test_activations_grow_with_the_batch_and_not_with_accumulation(shards):
    small = gm.lm.plan(shards, max_steps=5, **TINY)
    large = gm.lm.plan(shards, max_steps=5, **{**TINY, "batch_size": 8})
    accumulated = gm.lm.plan(shards, max_steps=5, **TINY, gradient_accumulation_steps=3)
    assert large.activation_bytes == 2 * small.activation_bytes > 0
    assert accumulated.activation_bytes == small.activation_bytes
    assert dict(accumulated.rows())["sequences per step"] == "12 (4 x 3 micro-batches)"


def test_a_batch_that_does_not_fit_is_reported_and_not_tried(shards, monkeypatch):
    monkeypatch.setattr(dry_run, "free_bytes", lambda: 1000)
    plan = gm.lm.plan(shards, max_steps=5, **TINY)
    assert (plan.step_seconds, plan.seconds) == (None, None)
    assert dict(plan.rows())["time"] == "not measured"
    assert "Pass a smaller batch_size" in plan.messages[-1]


def test_a_resumed_run_shows_what_is_left_and_stays_as_it_is(gristmill, shards, tmp_path):
    run = tmp_path / "run"
    gm.lm.train(shards, out=run, max_steps=6, progress=None, **TINY)
    before = files_in(run)
    code, out, _ = gristmill(
        "train-model", shards, "-o", run, "--resume", "--max_steps", 10, "--dry-run", "--progress", "none"
    )
    assert code == 0
    assert rows_of(out)["steps"].strip() == "10, of which 4 are left"
    plan = gm.lm.plan(shards, out=run, resume=True)
    assert (plan.num_steps, plan.first_step, plan.seconds) == (6, 6, 0.0)
    assert files_in(run) == before


def test_what_train_refuses_is_refused(gristmill, shards, tmp_path):
    run = tmp_path / "run"
    gm.lm.train(shards, out=run, max_steps=3, progress=None, **TINY)
    before = files_in(run)
    for arguments, message in [
        ([*FLAGS], "Already contains a run"),
        ([*FLAGS, "--resume", "--learning_rate", 0.5], "--learning-rate was 0.001 and is now 0.5"),
        ([*FLAGS, "--overwrite", "--vocab_size", 5], "--vocab-size 5 is too small"),
        ([*FLAGS, "--overwrite", "--init_from", tmp_path / "nothing"], "nothing"),
    ]:
        code, out, err = gristmill("train-model", shards, "-o", run, *arguments, "--dry-run", "--progress", "none")
        assert code in (1, 2) and out == ""
        assert message in err and err.count("\n") == 1
    assert files_in(run) == before


def test_a_vae_has_a_plan_too(shards):
    sizes = {"num_layers": 1, "num_heads": 1, "d_model": 16, "latent_dim": 4, "max_sequence_length": 32}
    plan = gm.lm.plan(shards, model="vae", max_steps=4, device="cpu", num_workers=1, **sizes)
    assert plan.seconds > plan.validation_seconds > 0
    assert json.dumps(plan.config.to_json())
