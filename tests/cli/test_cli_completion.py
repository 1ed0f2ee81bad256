"""The completion script, run by a real bash."""

import shutil
import subprocess

import pytest

from gristmill.cli import COMMANDS
from gristmill.shards.layouts import LAYOUTS
from gristmill.tokenizer.formats import FORMATS


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    from contextlib import redirect_stdout
    from io import StringIO

    from gristmill.cli import main

    written = {}
    for shell in ("bash", "zsh", "fish"):
        out = StringIO()
        with redirect_stdout(out):
            assert main(["completion", shell]) == 0
        written[shell] = tmp_path_factory.mktemp("completion") / shell
        written[shell].write_text(out.getvalue(), encoding="utf-8")
    return written


def completed(scripts, *words):
    """Return the completions that bash offers for the last word."""
    quoted = " ".join(f'"{word}"' for word in ("gristmill", *words))
    code = f"""
source {scripts["bash"]}
function=$(complete -p gristmill | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=({quoted}); COMP_CWORD={len(words)}
"$function" gristmill "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    bash = shutil.which("bash")
    done = subprocess.run([bash, "--norc", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_the_first_word_is_a_command(scripts):
    assert completed(scripts, "") >= set(COMMANDS)
    assert completed(scripts, "coun") == {"count", "count-words"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["encode", "--shard"], {"--shard-tokens"}),
        (["encode", "-f", ""], set(LAYOUTS)),
        (["export", "--format", "h"], {name for name in FORMATS if name.startswith("h")}),
        (["tokenize", "--show", ""], {"ids", "tokens", "both"}),
        (["train-model", "--resume", ""], {"auto", "never"}),
        (["train-model", "--rope"], {"--rope-theta"}),  # of a GPT
        (["train-model", "--latent"], {"--latent-dim", "--latent-injection"}),  # of a VAE
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["task", ""], {"plan", "run", "finish", "status"}),
        (["task", "plan", ""], {"count-words", "encode"}),
        (["task", "plan", "encode", "--shard"], {"--shard-tokens"}),
        (["encode", "--executor", ""], {"local", "processes", "ray"}),
        (["truncate", "--over"], {"--overwrite"}),
        (["inspect", "tok.j"], set()),  # bash completes file names itself
    ],
)
def test_options_and_choices_of_a_command(scripts, words, expected):
    assert completed(scripts, *words) == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_that_help_shows_is_offered(scripts, gristmill, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    shown = gristmill(command, "--help")[1]
    lines = [line.strip("│ ") for line in shown.splitlines()]
    parts = [part for line in lines if line.startswith("-") for part in line.split(", ")]
    flags = {part.split()[0] for part in parts if part[:2] == "--" and part[2:3].isalpha()}
    assert flags
    assert flags <= completed(scripts, command, "--")


def test_scripts_of_all_shells_name_every_command(scripts):
    for script in scripts.values():
        text = script.read_text(encoding="utf-8")
        assert all(name in text for name in COMMANDS)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (["completion"], "bash zsh fish"),
        (["task"], "plan run finish status"),
        (["task", "plan"], "count-words encode"),
    ],
)
def test_fish_offers_the_words_that_choose_until_one_is_there(scripts, seen, words):
    test = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in seen)
    line = f"complete -c gristmill -n '{test}; and not __fish_seen_subcommand_from {words}' -f -a '{words}'"
    assert line in scripts["fish"].read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(("shell", "check"), [("zsh", ["-n"]), ("fish", ["--no-execute"])])
def test_the_script_is_sound_where_its_shell_is_there_to_tell(scripts, shell, check):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    subprocess.run([shell, *check, scripts[shell]], check=True, timeout=60)


def test_another_shell_is_a_usage_error(gristmill):
    code, out, err = gristmill("completion", "bahs")
    assert (code, out) == (2, "")
    assert err == (
        "gristmill: error: SHELL 'bahs' is not valid. Did you mean 'bash'? Pass one of bash, zsh, fish. "
        "See 'gristmill completion --help'.\n"
    )
