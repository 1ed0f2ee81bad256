"""A model is confined to its folder: no other module names it, and its options are listed without torch."""

import ast
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

import gristmill
from gristmill.lm.models.registry import BUILT_IN, MODELS
from gristmill.lm.option_types import option_fields, option_meanings
from gristmill.lm.training.config import RUN_FIELDS, TrainConfig, options_of_model
from lm.tiny_runs import TINY, train

LM = Path(gristmill.__file__).parent / "lm"
# These modules use the latents of a VAE, and their errors explain how to train one.
ALLOWED = ("models", "use/latent.py")


def plain_strings(path):
    """(line, text) of each string of a module that is not a docstring."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docs:
            yield node.lineno, node.value


def test_no_module_outside_the_rooms_branches_on_the_name_of_a_model():
    """A string that is a name, or quotes one, as in "model='gpt'"; prose and option help may mention models."""
    found = []
    for path in sorted(LM.rglob("*.py")):
        place = path.relative_to(LM).as_posix()
        if place.startswith(ALLOWED):
            continue
        for line, text in plain_strings(path):
            if text in BUILT_IN or any(f"'{name}'" in text for name in BUILT_IN):
                found.append(f"{place}:{line}: {text}")
    assert found == []


def test_the_search_for_names_finds_them_where_they_belong():
    texts = {text for path in (LM / "models").rglob("*.py") for _, text in plain_strings(path)}
    assert texts >= BUILT_IN


@pytest.mark.parametrize(
    "program",
    [
        "import gristmill.lm.training.config",
        "import gristmill.lm.models.registry; gristmill.lm.models.registry.find_model('gpt').config()",
        "from gristmill.cli import main; main(['train-model', '--help'])",
        "from gristmill.cli import main; main(['train-model', '--model', 'vae', '--help'])",
    ],
    ids=["config", "registry", "help", "help of a vae"],
)
def test_options_are_known_without_torch(program):
    check = "import sys\nprint('torch' in sys.modules, 'lightning_fabric' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", f"{program}\n{check}"], capture_output=True, text=True, check=True)
    assert done.stderr.strip().splitlines()[-1] == "False False"


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_option_has_a_help_text(name):
    meanings = {**option_meanings(MODELS[name].config), **option_meanings(TrainConfig)}
    missing = [option for option in options_of_model(name) if not meanings.get(option, "").endswith((".", "…"))]
    assert missing == []


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_no_option_is_of_the_run_and_of_a_model(name):
    assert not option_fields(MODELS[name].config).keys() & RUN_FIELDS.keys()


def others_options(name):
    """The options that only other models have."""
    return set().union(*(option_fields(MODELS[other].config) for other in BUILT_IN)) - set(options_of_model(name))


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_config_json_and_the_checkpoint_have_the_options_of_the_model_only(tiny_shards, tmp_path, name):
    length = {"gpt": {}, "vae": {"max_sequence_length": 16, "latent_dim": 4, "plot_frequency": 0}}[name]
    options = {option: value for option, value in TINY.items() if option in options_of_model(name)}
    unused = {option: TrainConfig().model.context_length for option in ("context_length",) if option not in options}
    train(tiny_shards, tmp_path / "run", model=name, **{**options, **unused, **length, "max_steps": 1})
    config = json.loads((tmp_path / "run/config.json").read_text())
    state = json.loads((tmp_path / "run/checkpoints/step-000001/state.json").read_text())
    assert config.keys() == set(options_of_model(name))
    assert state["config"] == config
    assert others_options(name) and not config.keys() & others_options(name)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_help_lists_the_options_of_the_model_only(name, capsys):
    from gristmill.cli import main
    from gristmill.cli.train_model import OF_TEXT, TrainModel

    assert main(["train-model", "--model", name, "--help"]) == 0
    words = set(capsys.readouterr().out.replace(",", " ").split())
    of_the_command = {field.name for field in dataclasses.fields(TrainModel)} | set(OF_TEXT)
    flags = {f"--{option.replace('_', '-')}" for option in others_options(name) - of_the_command}
    assert words & {f"--{option.replace('_', '-')}" for option in option_fields(MODELS[name].config)}
    assert not words & flags
