"""Behaviour common to all commands: help, usage errors, exit codes, tracebacks."""

import pytest

import gristmill as package
from gristmill.cli import COMMANDS, main


def test_help_of_the_program_names_every_command_and_fits_in_80_columns(gristmill):
    code, out, err = gristmill("--help")
    assert (code, err) == (0, "")
    assert all(name in out for name in COMMANDS)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_fits_in_80_columns(gristmill, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = gristmill(command, "--help")
    assert (code, err) == (0, "")
    assert "usage: gristmill " + command in out
    assert max(map(len, out.splitlines())) <= 80


def test_no_command_at_all_is_a_usage_error_that_shows_the_help(gristmill):
    code, out, _ = gristmill()
    assert code == 2
    assert "usage: gristmill COMMAND" in out


def test_version(gristmill):
    assert gristmill("--version") == (0, f"gristmill {package.__version__}\n", "")


def test_a_misspelled_command_is_a_usage_error_with_the_right_one_named(gristmill):
    code, out, err = gristmill("train-tokeniser")
    assert (code, out) == (2, "")
    assert err == (
        "gristmill: error: unknown command 'train-tokeniser'. Did you mean 'train-tokenizer'? See 'gristmill --help'.\n"
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("trian", "Did you mean 'train-tokenizer' or 'train-model'?"),
        ("train", "Did you mean 'train-tokenizer' or 'train-model'?"),
        ("sampel", "Did you mean 'sample-corpus'?"),
        ("countwords", "Did you mean 'count-words'?"),
        ("cw", "Did you mean 'count-words'?"),
        ("--hlep", "Did you mean '--help'?"),
    ],
)
def test_the_first_word_or_the_initials_of_a_command_are_enough_for_a_hint(gristmill, name, hint):
    code, out, err = gristmill(name)
    assert (code, out) == (2, "")
    assert f"{name!r}. {hint} See 'gristmill --help'." in err


def test_an_unknown_option_is_a_usage_error(gristmill):
    code, out, err = gristmill("sample-corpus", "--sise", "3MB", "-o", "x")
    assert (code, out) == (2, "")
    assert "--sise" in err


def test_underscores_and_dashes_are_the_same_in_commands_and_options(gristmill, stories_path, tmp_path):
    for style, command, option in (("a", "train-tokenizer", "--vocab-size"), ("b", "train_tokenizer", "--vocab_size")):
        code, _, err = gristmill(command, stories_path, option, 300, "-o", tmp_path / style, "--progress", "none")
        assert (code, err) == (0, "")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_failure_is_one_line_without_a_traceback(gristmill, tmp_path):
    code, out, err = gristmill("inspect", tmp_path / "missing.json")
    assert (code, out) == (1, "")
    assert err == f"gristmill: error: {tmp_path / 'missing.json'}: No such file or directory\n"


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["inspect", str(tmp_path / "missing.json"), "--debug"])


def test_debug_in_the_environment_shows_the_traceback(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        main(["inspect", str(tmp_path / "missing.json")])


def test_a_bug_of_ours_is_not_dressed_up_as_an_error_of_the_user(monkeypatch, tokenizer_path):
    def broken(*_, **__):
        raise IndexError("list index out of range")

    monkeypatch.setattr(package.Tokenizer, "load", broken)
    with pytest.raises(IndexError):
        main(["inspect", str(tokenizer_path)])


def test_a_reader_that_goes_away_causes_no_traceback(gristmill_process, tokenizer_path):
    process = gristmill_process("inspect", tokenizer_path)
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == b""


def test_output_survives_a_terminal_that_knows_only_ascii(gristmill_process, tokenizer_path):
    process = gristmill_process("inspect", tokenizer_path, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert b"Longest tokens" in out


def test_help_does_not_wait_for_what_it_does_not_need(gristmill_process):
    process = gristmill_process("--help", PYTHONPROFILEIMPORTTIME="1")
    _, err = process.communicate(timeout=60)
    imported = {line.rsplit(b"|", 1)[-1].strip().decode() for line in err.splitlines()}
    assert not imported & {"tyro", "tqdm", "torch", "ray", "pyarrow", "matplotlib"}
