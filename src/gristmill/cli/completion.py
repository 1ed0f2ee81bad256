"""gristmill completion: a script that completes commands, options and choices in a shell."""

from __future__ import annotations

import dataclasses
import importlib
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from gristmill.cli import COMMANDS
from gristmill.cli.values import Choice, one_of


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command: how it is written, and what may follow it."""

    flags: tuple[str, ...]  # the long one last
    choices: tuple[str, ...] = ()
    takes_value: bool = True


@dataclass(frozen=True, kw_only=True)
class Command:
    """Print a script that completes commands, options, choices and files in your shell.

    bash: gristmill completion bash > ~/.local/share/bash-completion/completions/gristmill

    zsh: gristmill completion zsh > "${fpath[1]}/_gristmill"

    fish: gristmill completion fish > ~/.config/fish/completions/gristmill.fish
    """

    shell: Annotated[str, tyro.conf.Positional, one_of("SHELL", ["bash", "zsh", "fish"]), tyro.conf.arg(name="SHELL")]
    """The shell: bash, zsh or fish."""

    def run(self) -> int:
        print(SHELLS[self.shell]({name: options_of(name) for name in COMMANDS}))
        return 0


def options_of(name: str) -> list[Option]:
    """The options of a command; none but --help where a package that it needs is not installed."""
    options = [Option(("-h", "--help"), takes_value=False)]
    try:
        command = importlib.import_module(f"gristmill.cli.{name.replace('-', '_')}").Command
        hints = get_type_hints(command, include_extras=True)
    except ImportError:
        return options
    for field in dataclasses.fields(command):
        options += _options_of_field(field.name, hints[field.name])
    return options


def _options_of_field(name: str, hint: Any) -> list[Option]:
    kind, metadata = (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
    if any(mark is tyro.conf.Positional for mark in metadata):
        return []
    aliases = [alias for mark in metadata for alias in getattr(mark, "aliases", None) or ()]
    flag = "--" + name.replace("_", "-")
    flags = (*aliases, flag)
    if kind is bool:
        pair = [] if tyro.conf.FlagCreatePairsOff in metadata else [Option(("--no" + flag[1:],), takes_value=False)]
        return [Option(flags, takes_value=False), *pair]
    chosen = [mark.names for mark in metadata if isinstance(mark, Choice)]
    return [Option(flags, chosen[0] if chosen else _literals(kind))]


def _literals(kind: Any) -> tuple[str, ...]:
    """The strings that a type allows, where it lists them."""
    if get_origin(kind) is Literal:
        return tuple(str(value) for value in get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(name for part in get_args(kind) for name in _literals(part))
    return ()


def _bash(commands: dict[str, list[Option]]) -> str:
    return f"""\
_gristmill() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" names=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        names="{" ".join(_first_words())}"
    else
        case "${{COMP_WORDS[1]}} $previous" in
{_cases(_choice_cases(commands), '            {}) names="{}" ;;')}
        esac
        if [ -z "$names" ]; then
            case "$current" in
            -*)
                case "${{COMP_WORDS[1]}}" in
{_cases(_flag_cases(commands), '                {}) names="{}" ;;')}
                esac ;;
            esac
        fi
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
    for name, options in commands.items():
        for option in options:
            flags = " ".join(f"-l {flag[2:]}" if flag[:2] == "--" else f"-s {flag[1:]}" for flag in option.flags)
            value = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" * option.takes_value
            lines.append(f"complete -c gristmill -n '__fish_seen_subcommand_from {name}' {flags}{value}")
    return "\n".join(lines)


SHELLS: dict[str, Callable[[dict[str, list[Option]]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def _first_words() -> list[str]:
    return [*COMMANDS, "--help", "--version"]


def _choice_cases(commands: dict[str, list[Option]]) -> list[tuple[str, str]]:
    """What `COMMAND FLAG` may be followed by."""
    cases = [
        ("|".join(f'"{name} {flag}"' for flag in option.flags), " ".join(option.choices))
        for name, options in commands.items()
        for option in options
        if option.choices
    ]
    return [*cases, ('"completion completion"', " ".join(SHELLS))]


def _flag_cases(commands: dict[str, list[Option]]) -> list[tuple[str, str]]:
    return [(name, " ".join(flag for option in options for flag in option.flags)) for name, options in commands.items()]


def _cases(cases: list[tuple[str, str]], form: str) -> str:
    return "\n".join(form.format(pattern, names) for pattern, names in cases)


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")
