"""Wrong usage gives one line that names the fix, with the flags of the command line."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

import gristmill as package
from gristmill.cli import COMMANDS
from gristmill.cli.dialect import in_flags
from gristmill.cli.options import Flag
from gristmill.cli.usage import check_usage, options_of
from gristmill.cli.values import UsageError

FORM = "Pass digits, or a form such as 32k, 1.5M or 64Ki"


@dataclasses.dataclass(kw_only=True)
class Command:
    files: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILES…")] = ()
    folder: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]
    format: Literal["nanogpt", "llmc"] = "nanogpt"
    threads: int | None = None
    learning_rate: float = 1e-3
    batch: int | Literal["auto"] = 1
    special_tokens: tuple[str, ...] = ()
    on_error: str = "raise"
    end_of_text: str = "auto"
    overwrite: Flag = False
    bias: bool = True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fodler", "x"], "'try' has no option '--fodler'. Did you mean '--folder'?"),
        (["-o", "x", "--lr", "1"], "'try' has no option '--lr'. Did you mean '--learning-rate'?"),
        (["-o", "x", "--learning_rat=1"], "'try' has no option '--learning_rat'. Did you mean '--learning-rate'?"),
        (["-o", "x", "-q"], "'try' has no option '-q'."),
        (["-o", "x", "--no-overwrite"], "'try' has no option '--no-overwrite'. Did you mean '--overwrite'?"),
        ([], "missing --folder FOLDER (-o)."),
        (["-o"], "-o needs a value: --folder FOLDER (-o)."),
        (["-o", "--overwrite"], "-o needs a value: --folder FOLDER (-o)."),
        (
            ["-o", "x", "--format", "nanogtp"],
            "--format 'nanogtp' is not valid. Did you mean 'nanogpt'? Pass one of nanogpt, llmc.",
        ),
        (
            ["-o", "x", "--threads", "two"],
            "--threads 'two' is not a whole number. Pass digits, or a form such as 32k, 1.5M or 64Ki.",
        ),
        (["-o", "x", "--learning-rate", "fast"], "--learning-rate 'fast' is not a number. Pass a number, such as 0.1."),
        (
            ["-o", "x", "--batch", "big"],
            "--batch 'big' is not a whole number. Pass digits, or a form such as 32k, 1.5M or 64Ki, or auto.",
        ),
    ],
)
def test_wrong_usage_is_explained_with_the_fix(arguments, message):
    with pytest.raises(UsageError) as refused:
        check_usage(Command, "try", arguments)
    assert str(refused.value) == f"{message} See 'gristmill try --help'."
    with pytest.raises(SystemExit):  # tyro rejects the same arguments
        tyro.cli(Command, args=arguments, console_outputs=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "x", "a.txt", "b.txt"],
        ["--folder=x", "--learning_rate", "-1.5", "--threads", "-1"],
        ["-o", "x", "--special-tokens", "<a>", "<b>", "--overwrite", "a.txt"],
        ["-o", "x", "--special-tokens"],
        ["-o", "x", "--no-bias", "--batch", "auto"],
        ["-o", "x", "--threads", "None"],
        ["-o", "x", "-"],
    ],
)
def test_right_usage_is_left_to_the_parser_which_takes_it(arguments):
    check_usage(Command, "try", arguments)
    assert tyro.cli(Command, args=arguments).folder == Path("x")


@dataclasses.dataclass(kw_only=True)
class OneFolder:
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]


def test_an_argument_too_many_is_named():
    with pytest.raises(UsageError, match=r"unexpected argument 'b' for 'try'\."):
        check_usage(OneFolder, "try", ["a", "b"])
    with pytest.raises(UsageError, match=r"missing FOLDER\."):
        check_usage(OneFolder, "try", [])
    check_usage(OneFolder, "try", ["a"])


def test_debug_after_the_end_of_options_is_a_text(gristmill, tmp_path):
    package.Tokenizer([]).save(tmp_path / "tok.json")
    code, out, _ = gristmill("tokenize", "-t", tmp_path / "tok.json", "--show", "ids", "--", "a", "--debug")
    assert (code, out.splitlines()) == (0, ["97", "45 45 100 101 98 117 103"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["tokenize", "--help"], ["inspect", "TOK"]])
def test_output_that_cannot_be_written_is_one_line(arguments, tmp_path):
    package.Tokenizer([]).save(tmp_path / "TOK")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gristmill", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
            check=False,
        )
    assert done.stderr.startswith("gristmill: error: ") and done.stderr.count("\n") == 1, done.stderr
    assert "No space left on device" in done.stderr
    assert done.returncode == 1


def test_help_is_never_refused():
    check_usage(Command, "try", ["--no-such-thing", "--help"])


def test_help_after_the_end_of_options_is_a_value_and_excuses_nothing():
    with pytest.raises(UsageError, match="--format 'nosuch' is not valid"):
        check_usage(Command, "try", ["-o", "x", "--format", "nosuch", "--", "--help"])


def test_an_option_whose_help_speaks_of_markers_is_an_option():
    @dataclasses.dataclass
    class Model:
        encoding: Annotated[str, tyro.conf.arg(help="Positional encoding.")] = "rope"
        bias: Annotated[bool, tyro.conf.arg(help="Not FlagCreatePairsOff.")] = True

    assert [option.spellings for option in options_of(Model)] == [("--encoding",), ("--bias", "--no-bias")]


@dataclasses.dataclass
class Positionals:
    name: Annotated[Path, tyro.conf.Positional]
    kind: Annotated[Literal["bash", "zsh"], tyro.conf.Positional]


@pytest.mark.parametrize("arguments", [["bash", "bahs"], ["--", "bash", "bahs"], ["bash", "--", "bahs"]])
def test_a_positional_that_is_not_a_choice_is_refused_by_its_place(arguments):
    with pytest.raises(UsageError) as refused:
        check_usage(Positionals, "try", arguments)
    message = "KIND 'bahs' is not valid. Did you mean 'bash'? Pass one of bash, zsh. See 'gristmill try --help'."
    assert str(refused.value) == message
    check_usage(Positionals, "try", ["bahs", "bash"])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("num_threads=0 is too small.", "--threads 0 is too small."),
        ("Pass threads >= 1, or leave it out.", "Pass --threads >= 1, or leave it out."),
        ("Pass overwrite=True to replace it.", "Pass --overwrite to replace it."),
        ("Pass on_error='skip' to leave it out.", "Pass --on-error skip to leave it out."),
        (
            "Pass end_of_text= with a token, or end_of_text=None.",
            "Pass --end-of-text with a token, or --end-of-text none.",
        ),
        ("special_tokens=['<|a|>', 'b c'] are others.", "--special-tokens '<|a|>' 'b c' are others."),
        ("special_tokens={'<|a|>': 7} are others.", "--special-tokens '<|a|>=7' are others."),
        (r"on_error='\\w+' is odd.", r"--on-error '\w+' is odd."),
        ("on_error was 'raise'", "--on-error was 'raise'"),
        # Not options: English words, file names, tokens, calls and keyword arguments of other functions.
        ("the format of the folder", "the format of the folder"),
        ("format=npy.txt: No such file", "--format npy.txt: No such file"),
        ("data/on_error=3/a.txt", "data/on_error=3/a.txt"),
        ("'<|end_of_text|>' is special", "'<|end_of_text|>' is special"),
        ("gm.Shards(folder=x)", "gm.Shards(folder=x)"),
        ("depth=3", "depth=3"),
    ],
)
def test_a_message_names_the_flags_of_the_command(message, expected):
    assert in_flags(message, Command(folder=Path("x"))) == expected


def test_a_positional_has_its_metavar_in_messages():
    assert in_flags("Pass files=['a'] first.", Command(folder=Path("x"))) == "Pass FILES… a first."


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelled_flag_of_any_command_is_one_line(gristmill, name):
    code, out, err = gristmill(name, "--hlep")
    assert (code, out) == (2, "")
    assert err.startswith(f"gristmill: error: {name!r} has no option '--hlep'.") and err.count("\n") == 1
