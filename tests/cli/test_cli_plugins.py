"""--plugin: a user-defined model on the command line."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning_fabric")

from lm.tiny_runs import build_shards
from page_commands import registries_restored

EXAMPLE = Path(__file__).parents[2] / "examples/08_own_model.py"


def run_in_a_process(gristmill_process, *arguments):
    """Return (exit code, stdout, stderr) of a command in a subprocess, so that registrations do not leak."""
    process = gristmill_process(*arguments, OMP_NUM_THREADS="1")
    out, err = process.communicate(timeout=120)
    return process.returncode, out.decode(), err.decode()


def test_the_commands_in_the_example_work_in_a_folder_without_it(gristmill, gristmill_process, tmp_path, monkeypatch):
    shards = build_shards(tmp_path / "shards")
    monkeypatch.chdir(tmp_path)
    plugin = ("--plugin", EXAMPLE)
    options = ("--model", "gru", "--hidden_size", 16, "--context_length", 16, "--max_steps", 3, "--device", "cpu")
    code, _, err = run_in_a_process(gristmill_process, "train-model", shards, "-o", "run", *plugin, *options)
    assert code == 0, err
    with registries_restored():
        code, out, err = gristmill("train-model", shards, "-o", "run", *plugin, "--resume", "--max_steps", 4)
    assert code == 0, err
    assert out.split()[:2] == ["steps", "4"]
    with registries_restored():
        code, out, err = gristmill("generate", "run", *plugin, "--prompt", "Once", "--seed", 0)
    assert code == 0 and out.startswith("Once"), err
    with registries_restored():
        code, out, err = gristmill("evaluate", "run", shards, *plugin, "--device", "cpu")
    assert code == 0 and "perplexity" in out, err
    code, out, err = run_in_a_process(gristmill_process, "evaluate", "run", shards)
    assert code != 0 and "--plugin" in err and "Traceback" not in err


def test_help_lists_the_options_of_the_model_of_a_plugin(gristmill_process):
    code, out, _ = run_in_a_process(gristmill_process, "train-model", "--plugin", EXAMPLE, "--model", "gru", "--help")
    assert code == 0
    assert "--hidden-size N" in out and "Width of the recurrent state. (default: 128)" in out
    assert "--d-model" not in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("x = (\n", "failed: SyntaxError: '(' was never closed"),
        ("\n\nraise RuntimeError('two\\nlines')\n", "failed in line 3: RuntimeError: two lines"),
        ("import sys\nsys.exit(0)\n", "failed in line 2: SystemExit: 0"),
        ("import no_such_module\n", "failed in line 1: ModuleNotFoundError"),
    ],
)
@pytest.mark.parametrize("command", [["train-model", "shards", "-o", "run"], ["generate", "run"]])
def test_a_plugin_that_fails_is_one_line(gristmill, tmp_path, content, message, command):
    path = tmp_path / "failing.py"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    code, out, err = gristmill(*command, "--plugin", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"gristmill: error: --plugin {path} {message}") and err.count("\n") == 1
    assert "gristmill_plugin_failing" not in sys.modules


@pytest.mark.parametrize("name", ["mine.txt", "folder"])
def test_a_plugin_that_is_no_python_file_is_one_line(gristmill, tmp_path, name):
    (tmp_path / "mine.txt").write_text("hello", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    code, _, err = gristmill("train-model", "shards", "-o", "run", "--plugin", tmp_path / name)
    assert code == 2
    assert "Pass a .py file." in err and err.count("\n") == 1
