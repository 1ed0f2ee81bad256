"""gristmill completion: print a shell completion script for commands, options and choices."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from gristmill.cli import COMMANDS, task
from gristmill.cli.examples import Examples
from gristmill.cli.usage import HELP, Option, options_of
from gristmill.cli.values import one_of


@dataclass(frozen=True, kw_only=True)
class Command:
    """Print a shell completion script for commands, options, choices and files.

    Load it with eval, or write it to a file that the shell loads at start, such as
    ~/.local/share/bash-completion/completions/gristmill for bash.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Complete commands and options in this bash session.", 'eval "$(gristmill completion bash)"'),
        ("Install the completion for zsh.", 'gristmill completion zsh > "${fpath[1]}/_gristmill"'),
        ("Install the completion for fish.", "gristmill completion fish > ~/.config/fish/completions/gristmill.fish"),
    )

    shell: Annotated[str, tyro.conf.Positional, one_of(["bash", "zsh", "fish"]), tyro.conf.arg(name="SHELL")]
    """Shell: bash, zsh or fish."""

    def run(self) -> int:
        print(SHELLS[self.shell]({name: _options(name) for name in COMMANDS}))
        return 0


def _options(name: str) -> list[Option]:
    """Return the options of a command that have a flag; only --help if a package that it needs is not installed."""
    help = Option("help", HELP, "", (), is_required=False, takes_many=False, is_switch=True)
    try:
        module = importlib.import_module(f"gristmill.cli.{name.replace('-', '_')}")
    except ImportError:
        return [help]
    # A command whose options depend on the arguments offers the options of every case.
    classes = module.every_command() if hasattr(module, "every_command") else [module.Command]
    options = {option.name: option for command in classes for option in options_of(command)}
    return [help, *(option for option in options.values() if not option.is_positional)]


def _bash(commands: dict[str, list[Option]]) -> str:
    return f"""\
_gristmill() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" names=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        names="{" ".join(_first_words())}"
    else
        case "$current" in
        -*)
            case "${{COMP_WORDS[1]}}" in
{_cases(_flag_cases(commands), '            {}) names="{}" ;;')}
            esac ;;
        *)
            case "${{COMP_WORDS[1]}} $previous" in
{_cases(_choice_cases(commands), '            {}) names="{}" ;;')}
            esac ;;
        esac
    fi
    if [ -n "$names" ]; then COMPREPLY=($(compgen -W "$names" -- "$current")); fi
}}
complete -o default -F _gristmill gristmill"""


def _zsh(commands: dict[str, list[Option]]) -> str:
    described = "\n".join(f"        '{name}:{_quoted(summary)}'" for name, summary in COMMANDS.items())
    return f"""\
#compdef gristmill
_gristmill() {{
    local -a commands names
    commands=(
{described}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    case "$words[2] $words[CURRENT-1]" in
{_cases(_choice_cases(commands), "    {}) names=({}) ;;")}
    esac
    if (( ! $#names )) && [[ "$words[CURRENT]" == -* ]]; then
        case "$words[2]" in
{_cases(_flag_cases(commands), "        {}) names=({}) ;;")}
        esac
    fi
    if (( $#names )); then compadd -- $names; else _files; fi
}}
if [ "$funcstack[1]" = "_gristmill" ]; then _gristmill "$@"; else compdef _gristmill gristmill; fi"""


def _fish(commands: dict[str, list[Option]]) -> str:
    lines = [
        f"complete -c gristmill -n __fish_use_subcommand -f -a {name} -d '{_quoted(summary)}'"
        for name, summary in COMMANDS.items()
    ]
    for name, before, words in WORDS:
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in dict.fromkeys((name, before)))
        lines.append(f"complete -c gristmill -n '{seen}; and not __fish_seen_subcommand_from {words}' -f -a '{words}'")
    for name, options in commands.items():
        for option in options:
            flags = " ".join(f"-l {flag[2:]}" if flag[:2] == "--" else f"-s {flag[1:]}" for flag in option.spellings)
            value = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" * (not option.is_switch)
            lines.append(f"complete -c gristmill -n '__fish_seen_subcommand_from {name}' {flags}{value}")
    return "\n".join(lines)


SHELLS: dict[str, Callable[[dict[str, list[Option]]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}


# Choices without a flag: the command, the preceding word, and the choices.
WORDS = [
    ("completion", "completion", " ".join(SHELLS)),
    ("task", "task", " ".join(task.ACTIONS)),
    ("task", "plan", " ".join(task.PLANNED)),
]


def _first_words() -> list[str]:
    return [*COMMANDS, "--help", "--version"]


def _choice_cases(commands: dict[str, list[Option]]) -> list[tuple[str, str]]:
    """Return the choices that may follow each `COMMAND FLAG`."""
    cases = [
        ("|".join(f'"{name} {flag}"' for flag in option.spellings), " ".join(option.choices))
        for name, options in commands.items()
        for option in options
        if option.choices
    ]
    return [*cases, *((f'"{name} {before}"', words) for name, before, words in WORDS)]


def _flag_cases(commands: dict[str, list[Option]]) -> list[tuple[str, str]]:
    return [
        (name, " ".join(flag for option in options for flag in option.spellings)) for name, options in commands.items()
    ]


def _cases(cases: list[tuple[str, str]], form: str) -> str:
    return "\n".join(form.format(pattern, names) for pattern, names in cases)


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")
