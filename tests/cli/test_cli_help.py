"""The help of every command is complete: a description, help for each option, and examples that the parser accepts."""

import importlib
import json
import re
import shlex
from typing import get_type_hints

import pytest

from gristmill.cli import COMMANDS, _parse
from gristmill.cli.usage import options_of
from gristmill.corpus.packages import load_zstd
from gristmill.lm.option_types import option_meanings


def module_of(name):
    return importlib.import_module(f"gristmill.cli.{name.replace('-', '_')}")


def classes():
    """Each command with each of its classes: `task` has one per action, `train-model` one per model."""
    for name in COMMANDS:
        module = module_of(name)
        for command in module.every_command() if hasattr(module, "every_command") else [module.Command]:
            yield pytest.param(name, command, id=f"{name}-{command.__qualname__}")


CLASSES = list(classes())


def lines_of(line):
    """The commands of one line, each as (name, arguments)."""
    line = re.sub(r'^eval "\$\((.*)\)"$', r"\1", line)
    for part in line.split(" | "):
        words = shlex.split(re.split(r" [<>] ", part)[0])
        assert words[0] == "gristmill"
        yield words[1], words[2:]


def help_of_options(command):
    """The help text of each option: in its annotation, or below the field."""
    hints = get_type_hints(command, include_extras=True)
    texts = option_meanings(command)
    for name, hint in hints.items():
        for note in getattr(hint, "__metadata__", ()):
            texts[name] = getattr(note, "help", None) or texts.get(name, "")
    return texts


@pytest.mark.parametrize(("name", "command"), CLASSES)
def test_every_option_has_help(name, command):
    texts = help_of_options(command)
    assert [option.name for option in options_of(command) if not texts.get(option.name)] == []
    # Full sentences: readers see them one after the other.
    assert [text for text in texts.values() if text and not text.endswith(".")] == []


@pytest.mark.parametrize(("name", "command"), CLASSES)
def test_description_and_examples_are_given(name, command):
    first = command.__doc__.splitlines()[0]
    assert first[0].isupper() and first.endswith((".", ":")), first
    assert 1 <= len(command.EXAMPLES) <= 4
    for note, line in command.EXAMPLES:
        assert note.endswith(".") and len(note) <= 76, note
        assert len(line) <= 78, line


@pytest.mark.parametrize(("name", "command"), CLASSES)
def test_examples_are_accepted_by_the_parser(name, command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _, line in command.EXAMPLES:
        for other, arguments in lines_of(line):
            parsed = _parse(other, arguments)
            assert not isinstance(parsed, int), capsys.readouterr().err
    assert any(other == name for _, line in command.EXAMPLES for other, _ in lines_of(line))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_the_examples(gristmill, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = gristmill(name, "--help")
    assert (code, err) == (0, "")
    _, _, examples = out.partition("\nexamples:\n")
    found = [line.strip() for line in examples.splitlines() if not line.strip().startswith("#") and line.strip()]
    assert found == [line for _, line in module_of(name).Command.EXAMPLES]


@pytest.fixture
def examples_folder(tmp_path, stories_path, tokenizer_path, gristmill, monkeypatch):
    """A folder with the files that cheap examples read."""
    monkeypatch.chdir(tmp_path)
    text = stories_path.read_text(encoding="utf-8")[:20_000]
    for name in ("corpus.txt", "story.txt"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name in ("tok.json", "old.json", "new.json"):
        (tmp_path / name).write_bytes(tokenizer_path.read_bytes())
    (tmp_path / "data").mkdir()
    record = json.dumps({"text": text, "body": text}).encode()
    (tmp_path / "data" / "a.jsonl.zst").write_bytes(load_zstd().compress(record))
    assert gristmill("encode", "corpus.txt", "-t", "tok.json", "-o", "shards", "--val-fraction", 0.01)[0] == 0
    assert gristmill("count-words", "corpus.txt", "-o", "a.gmw")[0] == 0
    assert gristmill("count-words", "story.txt", "-o", "b.gmw")[0] == 0
    return tmp_path


CHEAP = ("count-words", "tokenize", "decode", "count", "compare", "inspect", "encode", "verify")


def test_cheap_examples_run(examples_folder, gristmill):
    for line in (line for name in CHEAP for _, line in module_of(name).Command.EXAMPLES):
        if re.search(r" [<|] |--executor", line):  # needs a shell, or starts processes
            continue
        # Finished shards of other options are not replaced.
        arguments = shlex.split(line.replace("-o shards", "-o other --overwrite"))[1:]
        code, _, err = gristmill(*arguments)
        assert code == 0, f"{line}: {err}"


@pytest.mark.parametrize("words", ["task plan", "task plan encode", "task plan count-words", "task run", "task finish"])
def test_the_usage_line_names_the_action(capsys, words):
    name, *arguments = words.split()
    assert _parse(name, [*arguments, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: gristmill {words} [-h] ")
