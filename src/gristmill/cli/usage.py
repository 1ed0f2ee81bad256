"""Check of the arguments before they are parsed: unknown flags, missing options, invalid values, as one-line errors.

tyro parses the arguments afterwards and rejects the same mistakes, in boxes of ten lines. It handles all other errors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro

from gristmill.arguments import nearest
from gristmill.cli.values import Choice, UsageError, parse_count

HELP = ("-h", "--help")


@dataclass(frozen=True, slots=True)
class Option:
    """One field of a command: its flags and the values it takes."""

    name: str
    spellings: tuple[str, ...]  # () for a positional
    metavar: str
    types: tuple[Any, ...]  # members of its union, with Literals expanded
    is_required: bool
    takes_many: bool
    is_switch: bool

    @property
    def is_positional(self) -> bool:
        """Whether the option has no flag."""
        return not self.spellings

    @property
    def choices(self) -> tuple[str, ...]:
        """The names that the option accepts; empty if it accepts any value."""
        return tuple(kind for kind in self.types if isinstance(kind, str))

    @property
    def described(self) -> str:
        """The option as messages show it."""
        if self.is_positional:
            return self.metavar + f" ({', '.join(self.choices)})" * bool(self.choices)
        *long, short = self.spellings if len(self.spellings) > 1 else (*self.spellings, "")
        return f"{long[0]} {self.metavar}" + f" ({short})" * bool(short)

    def refusal(self, text: str, spelling: str) -> str:
        """Return why `text` is not a valid value of this option, or "" if it is valid."""
        names = self.choices
        kinds = [kind for kind in self.types if not isinstance(kind, str)]
        if text in names or any(_fits(text, kind) for kind in kinds):
            return ""
        if not kinds:
            return f"{spelling} {text!r} is not valid.{nearest(text, names)} Pass one of {', '.join(names)}."
        forms = ["a number, such as 0.1"] if float in kinds else ["digits", "a form such as 32k, 1.5M or 64Ki"]
        kind = "number" if float in kinds else "whole number"
        return f"{spelling} {text!r} is not a {kind}. Pass {', or '.join([*forms, *names])}."


def options_of(command: type) -> list[Option]:
    """Return the options of a command's dataclass."""
    hints = get_type_hints(command, include_extras=True)
    return [_option(field, hints[field.name]) for field in dataclasses.fields(command)]


def check_usage(command: type, name: str, arguments: Sequence[str]) -> None:
    """Raise `UsageError` if the arguments of the command `name` are wrong, with one line that names the fix."""
    if any(argument in HELP or argument.startswith("--tyro-") for argument in takewhile(_is_not_end, arguments)):
        return
    options = options_of(command)
    by_spelling = {spelling: option for option in options for spelling in option.spellings}
    help = f"See 'gristmill {name} --help'."
    seen: set[str] = set()
    loose: list[str] = []
    for spelling, values in _groups(arguments, by_spelling):
        if spelling is None:
            loose += values
            continue
        flag = _normal(spelling)
        if flag not in by_spelling:
            known = [spelling for spelling in by_spelling if spelling.startswith("--")]
            raise UsageError(f"{name!r} has no option {spelling!r}.{nearest(flag, known)} {help}")
        option = by_spelling[flag]
        seen.add(option.name)
        if not values and not option.is_switch and not option.takes_many:
            raise UsageError(f"{spelling} needs a value: {option.described}. {help}")
        for value in [] if option.is_switch else values:
            _check_value(option, value, option.spellings[0], help)
    positionals = [option for option in options if option.is_positional]
    seen |= {option.name for _, option in zip(loose, positionals, strict=False)}
    if len(loose) > len(positionals) and not any(option.takes_many for option in positionals):
        raise UsageError(f"unexpected argument {loose[len(positionals)]!r} for {name!r}. {help}")
    for value, option in zip(loose, positionals, strict=False):
        _check_value(option, value, option.metavar, help)
    missing = [option.described for option in options if option.is_required and option.name not in seen]
    if missing:
        raise UsageError(f"missing {' and '.join(missing)}. {help}")


def _check_value(option: Option, value: str, spelling: str, help: str) -> None:
    if refusal := option.refusal(value, spelling):
        raise UsageError(f"{refusal} {help}")


def _is_not_end(argument: str) -> bool:
    """Return whether options may still follow: after "--" even --help is a value."""
    return argument != "--"


def _groups(arguments: Sequence[str], by_spelling: dict[str, Option]) -> Iterator[tuple[str | None, list[str]]]:
    """Yield each flag with its values, and (None, values) for positional arguments."""
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        if argument == "--":
            yield None, list(arguments[position:])
            return
        if not _is_flag(argument):
            yield None, [argument]
            continue
        spelling, equals, value = argument.partition("=")
        option = by_spelling.get(_normal(spelling))
        values = [value] if equals else []
        room = 0 if equals or option is None or option.is_switch else len(arguments) if option.takes_many else 1
        while len(values) < room and position < len(arguments) and not _is_flag(arguments[position]):
            values.append(arguments[position])
            position += 1
        yield spelling, values


def _is_flag(argument: str) -> bool:
    """Return whether an argument is a flag; "-" is standard input, and "-1" is a number."""
    return len(argument) > 1 and argument[0] == "-" and not argument[1].isdecimal() and argument[1] != "."


def _normal(spelling: str) -> str:
    return spelling.replace("_", "-") if spelling.startswith("--") else spelling


def _option(field: dataclasses.Field[Any], hint: Any) -> Option:
    kind, *notes = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
    config = [note for note in notes if hasattr(note, "aliases")]
    is_switch = kind is bool
    spellings: tuple[str, ...] = ()
    if not any(note is tyro.conf.Positional for note in notes):
        flag = "--" + field.name.replace("_", "-")
        aliases = [alias for note in config for alias in note.aliases or ()]
        is_pair = is_switch and not any(note is tyro.conf.FlagCreatePairsOff for note in notes)
        negated = [f"--no-{flag[2:]}"] * is_pair
        spellings = (flag, *aliases, *negated)
    is_required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    takes_many = any(get_origin(part) in (tuple, list) for part in (kind, *get_args(kind)))
    # A list of values may be empty: the command checks that itself.
    own = [note for note in notes if hasattr(note, "instance_from_str")]  # a value type that reports its own errors
    named = [*config, *(note for note in own if not isinstance(note, Choice))]
    metavar = next((note.metavar for note in named if note.metavar), field.name.upper().replace("_", "-"))
    types = (str,) if own and not isinstance(own[0], Choice) else own[0].names if own else _members(kind)
    return Option(field.name, spellings, metavar, types, is_required and not takes_many, takes_many, is_switch)


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union: types, and the texts of Literals."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if get_origin(kind) in (tuple, list):
        return _members(get_args(kind)[0])
    if get_args(kind):
        return tuple(member for part in get_args(kind) for member in _members(part))
    return () if kind is type(None) else (kind,)


def _fits(text: str, kind: Any) -> bool:
    if kind in (int, float):
        try:
            parse_count(text, "") if kind is int else float(text)
        except (ValueError, UsageError):
            return text == "None"  # how tyro spells an option that is not given
        return True
    return kind in (str, Path, bool) or not isinstance(kind, type)
