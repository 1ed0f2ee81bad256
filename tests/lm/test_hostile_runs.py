"""Edited, forged or diverged runs raise a clear error before they use memory."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import gristmill as gm
from gristmill.lm.models.sampling import chosen, new_dice, token_probabilities
from gristmill.lm.training import checkpoint as checkpoints
from gristmill.lm.training import tensor_files
from gristmill.lm.training.checkpoint import load_model, read_state
from gristmill.lm.training.size_check import check_sizes
from lm.tiny_runs import train


@pytest.fixture(scope="module")
def finished(tiny_shards, tmp_path_factory):
    run = tmp_path_factory.mktemp("finished") / "run"
    train(tiny_shards, run, max_steps=4, checkpoint_interval=2)
    return run


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "run"))


def edit_config(run, **options):
    path = run / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **options}))


def forge(run, **options):
    """Edit config.json and the state of every checkpoint in the same way, including checksums."""
    edit_config(run, **options)
    for folder in checkpoints.list_checkpoints(run):
        state = read_state(folder)
        state["config"] |= options
        checkpoints._write_state(folder / "state.json", state)


def poison(run, value, name="head.weight"):
    """Write weights that are not finite to a checkpoint, with correct checksums."""
    for folder in checkpoints.list_checkpoints(run):
        weights = load_file(folder / "model.safetensors")
        weights[name].view(-1)[5] = value
        save_file(weights, folder / "model.safetensors")
        state = read_state(folder)
        file = folder / "model.safetensors"
        state["files"][file.name] = {"bytes": file.stat().st_size, "xxh64": tensor_files.file_checksum(file)}
        checkpoints._write_state(folder / "state.json", state)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]) << 20,) * 2)
import gristmill as gm
try:
    gm.lm.generate(sys.argv[1], "the", max_tokens=1, device="cpu")
except gm.CheckpointError as error:
    print("refused:", error)
"""


def generate_in_little_memory(run, megabytes=6000):
    command = [sys.executable, "-c", LIMITED, str(run), str(megabytes)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize(
    ("option", "value"),
    [("rope_theta", 500.0), ("num_layers", 100_000), ("num_layers", 3), ("num_heads", 4), ("norm_eps", 0.5)],
)
def test_an_edited_model_is_refused_by_the_name_of_the_option(run, tiny_shards, option, value):
    before = json.loads((run / "config.json").read_text()).get(option)
    edit_config(run, **{option: value})
    message = rf"config\.json: does not describe the model of step-\d+: {option} was {before} and is now {value}"
    with pytest.raises(gm.CheckpointError, match=message):
        gm.lm.generate(run, "the", max_tokens=1)
    with pytest.raises(gm.CheckpointError, match=message):
        gm.lm.evaluate(run, tiny_shards)


def test_options_that_are_not_of_the_model_may_differ(run):
    edit_config(run, keep=7, log_interval=3, max_steps=9, batch_size=2)
    assert gm.lm.generate(run, "the", max_tokens=1, seed=0) is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 100_000}, "far more layers than the"),
        ({"num_layers": 10**12}, "far more layers than the"),
        ({"num_layers": 3}, r"'blocks\.2\..* is missing"),
        ({"d_model": 2**20, "num_heads": 2}, "another model"),
        ({"d_model": 2**40, "num_heads": 2}, "another model|cannot be built"),
        ({"vocab_size": 10**12}, "another model|cannot be built"),
        ({"context_length": 10**11}, "far more than its weights"),
    ],
)
def test_a_forged_model_is_refused_before_it_takes_memory(run, options, message):
    forge(run, **options)
    with pytest.raises(gm.CheckpointError, match=message):
        load_model(run)


def test_a_forged_model_is_refused_within_a_limit_of_memory(run):
    forge(run, num_layers=100_000, context_length=10**9)
    done = generate_in_little_memory(run)
    assert "refused:" in done.stdout, done.stderr[-2000:]


def test_a_model_that_needs_data_to_be_made_is_loaded_all_the_same(tmp_path):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.scale = float(torch.ones(()).sum().item())

    check_sizes(Own, Own().state_dict(), tmp_path)


def test_other_threads_build_models_while_one_is_checked(tmp_path):
    weights = nn.Linear(2, 2).state_dict()

    def build():
        import threading

        made = []
        thread = threading.Thread(target=lambda: made.extend(nn.Linear(1, 1) for _ in range(3000)))
        thread.start()
        thread.join()
        assert len(made) == 3000
        return nn.Linear(2, 2)

    check_sizes(build, weights, tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_when_they_are_loaded(run, tiny_shards, value):
    poison(run, value)
    with pytest.raises(gm.CheckpointError, match=r"'head\.weight' contains NaN or inf.*Use another checkpoint: step-"):
        gm.lm.generate(run, "the", max_tokens=4, temperature=0)
    with pytest.raises(gm.CheckpointError, match="the weights are not finite"):
        gm.lm.evaluate(run, tiny_shards)


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("bad", [[float("nan"), 0.0, 1.0], [float("inf"), 0.0, 1.0], [float("-inf")] * 3])
def test_logits_that_are_not_finite_choose_no_token(temperature, bad):
    with pytest.raises(gm.NotFiniteError, match="logits of the model are not finite"):
        chosen(torch.tensor([[0.0, 1.0, 2.0], bad]), new_dice(0), temperature=temperature, top_k=None, top_p=None)


def test_a_single_token_may_be_ruled_out_by_minus_infinity():
    found = token_probabilities(torch.tensor([0.0, float("-inf"), 0.0]))
    assert found.tolist() == [0.5, 0.0, 0.5]
