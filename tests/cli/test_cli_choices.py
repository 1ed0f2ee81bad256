"""The choices of options come from the registries; the command line does not repeat them."""

import subprocess
import sys

import pytest

from gristmill.arguments import TIE_BREAKS
from gristmill.corpus.options import DOCUMENTS, INPUT_FORMATS, ON_ERROR
from gristmill.lm.models.registry import MODELS
from gristmill.lm.training.presets import all_presets
from gristmill.lm.training.registries import OPTIMIZERS, SCHEDULES
from gristmill.pretokenize import NATIVE_PATTERNS
from gristmill.shards.end_of_text import POSITIONS
from gristmill.shards.layouts import LAYOUTS
from gristmill.tokenizer.formats import FORMATS

REGISTRIES = {
    "encode": (LAYOUTS, INPUT_FORMATS, DOCUMENTS, ON_ERROR, POSITIONS),
    "export": (FORMATS,),
    "train-tokenizer": (NATIVE_PATTERNS, TIE_BREAKS, INPUT_FORMATS, DOCUMENTS, ON_ERROR),
    "train-model": (all_presets(), MODELS, OPTIMIZERS, SCHEDULES),
}


@pytest.mark.parametrize("command", REGISTRIES)
def test_help_names_all_that_is_registered(gristmill, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = gristmill(command, "--help")[1]
    for registry in REGISTRIES[command]:
        assert all(name in shown for name in registry)


@pytest.mark.parametrize(
    ("command", "register"),
    [
        ("encode", "from gristmill.shards.layouts import LAYOUTS as r; r['zweiback'] = r['npy']"),
        ("export", "from gristmill.tokenizer.formats import FORMATS as r; r['zweiback'] = r['gpt2']"),
        ("train-tokenizer", "from gristmill.pretokenize import NATIVE_PATTERNS as r; r['zweiback'] = r['gpt2']"),
        ("train-tokenizer", "import gristmill.arguments as m; m.TIE_BREAKS = (*m.TIE_BREAKS, 'zweiback')"),
        ("encode", "import gristmill.corpus.options as m; m.INPUT_FORMATS = (*m.INPUT_FORMATS, 'zweiback')"),
        ("encode", "import gristmill.corpus.options as m; m.DOCUMENTS = (*m.DOCUMENTS, 'zweiback')"),
        ("train-tokenizer", "import gristmill.corpus.options as m; m.ON_ERROR = (*m.ON_ERROR, 'zweiback')"),
        ("train-model", "import gristmill as gm; gm.lm.register_schedule('zweiback', lambda step: 1.0)"),
        ("train-model", "import gristmill as gm; gm.lm.GPTConfig.PRESETS = {'zweiback': {'num_layers': 7}}"),
    ],
)
def test_what_is_newly_registered_appears_in_help_by_itself(command, register):
    code = f"{register}\nfrom gristmill.cli import main\nmain([{command!r}, '--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "zweiback" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["encode", "a.txt", "-t", "tok.json", "-o", "out", "-f", "nosuch"],
        ["export", "tok.json", "-o", "out", "-f", "nosuch"],
        ["train-tokenizer", "a.txt", "--vocab-size", "300", "-o", "out", "--tie-break", "nosuch"],
        ["train-tokenizer", "a.txt", "--vocab-size", "300", "-o", "out", "--documents", "nosuch"],
    ],
)
def test_an_unknown_choice_is_a_usage_error_that_lists_the_known_ones(gristmill, arguments):
    code, _, err = gristmill(*arguments)
    assert code == 2
    assert "nosuch" in err
    assert any(str(name) in err for name in ("npy", "tiktoken", "first-seen", "separator"))


@pytest.mark.parametrize(
    "command", ["train-tokenizer", "encode", "export", "inspect", "verify", "evaluate", "generate"]
)
def test_help_of_a_command_does_not_import_torch(gristmill_process, command):
    process = gristmill_process(command, "--help", PYTHONPROFILEIMPORTTIME="1")
    _, err = process.communicate(timeout=60)
    imported = {line.rsplit(b"|", 1)[-1].strip().decode() for line in err.splitlines()}
    assert "tyro" in imported
    assert not imported & {"torch", "pyarrow", "matplotlib", "transformers"}
