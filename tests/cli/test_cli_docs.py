"""Commands in the documentation use existing options, spelled as in the help."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from gristmill.cli.usage import check_usage

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    "beyond-one-machine.md",
    "bench.md",
    "command-line.md",
    "data.md",
    "how-it-works/ablation.md",
    "training.md",
    "use.md",
    "vae.md",
    "posterior-collapse.md",
]


def commands(text):
    """Yield the commands that fill a line, each as (name, arguments)."""
    for line in re.findall(r"^(?:.* \| )?gristmill .*$", text, re.MULTILINE):
        for part in re.split(r" [|>] ", line):
            words = shlex.split(part, comments=True)
            if words[0] == "gristmill":
                yield words[1], words[2:]


@pytest.mark.parametrize("page", PAGES)
def test_options_are_written_with_dashes(page):
    assert re.findall(r"--\w[\w-]*_\w+", (DOCS / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_right_usage(page, tmp_path, monkeypatch):
    for run in ("vae", "collapsing"):  # runs made by earlier lines, whose options later lines use
        (tmp_path / run).mkdir()
        (tmp_path / run / "config.json").write_text('{"model": "vae"}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = list(commands((DOCS / page).read_text(encoding="utf-8")))
    assert found
    for name, arguments in found:
        module = importlib.import_module(f"gristmill.cli.{name.replace('-', '_')}")
        arguments = getattr(module, "spelled_out", list)(arguments)
        # The options of train-model depend on the model.
        command = module.command_class(arguments) if hasattr(module, "command_class") else module.Command
        check_usage(command, name, arguments)


def test_the_export_on_the_page_of_the_command_line_warns_of_nothing(gristmill, tokenizer_path, tmp_path, monkeypatch):
    page = (DOCS / "command-line.md").read_text(encoding="utf-8")
    (arguments,) = [arguments for name, arguments in commands(page) if name == "export"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tok.json").write_bytes(tokenizer_path.read_bytes())
    code, _, err = gristmill("export", *arguments)
    assert (code, err) == (0, "")
