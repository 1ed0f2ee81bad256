"""Types of option values. An annotation such as `num_layers: Count = 4` declares both type and range.

    @dataclass(frozen=True, kw_only=True)
    class MyConfig(gm.lm.WindowModelConfig):
        num_layers: Count = 4
        \"\"\"Layers of the model.\"\"\"

`check_options` reads the annotations and raises `OptionError` for the first invalid value. `option_meanings` reads the
text below each field, which --help shows.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from gristmill.arguments import check_whole_number
from gristmill.errors import OptionError

__all__ = [
    "Count",
    "CountOrNone",
    "Fraction",
    "NotNegative",
    "Positive",
    "Share",
    "Steps",
    "check_options",
    "fitted",
    "option_fields",
    "option_meanings",
]

MAX_MESSAGE = 2_000  # characters of an error message that may have a value from a file


@dataclass(frozen=True)
class Rule:
    """A constraint on a value besides its type; `check(name, value)` raises `OptionError` for an invalid value."""

    check: Callable[[str, Any], None]


def _check_count(name: str, value: Any) -> None:
    if check_whole_number(name, value) < 1:
        raise OptionError(f"{name} must be >= 1, got {value}.")


def _check_count_or_none(name: str, value: Any) -> None:
    if check_whole_number(name, value) < 0:
        raise OptionError(f"{name} must be >= 0, got {value}.")


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OptionError(f"{name}={value!r} is of type {type(value).__name__}. Pass a number.")


def _check_positive(name: str, value: Any) -> None:
    _check_number(name, value)
    if not 0 < value < math.inf:
        raise OptionError(f"{name} must be > 0, got {value!r}.")


def _check_not_negative(name: str, value: Any) -> None:
    _check_number(name, value)
    if not 0 <= value < math.inf:
        raise OptionError(f"{name} must be >= 0, got {value!r}.")


def _check_fraction(name: str, value: Any) -> None:
    _check_number(name, value)
    if not 0 <= value <= 1:
        raise OptionError(f"{name} must be between 0 and 1, got {value!r}.")


def _check_share(name: str, value: Any) -> None:
    _check_number(name, value)
    if not 0 <= value < 1:
        raise OptionError(f"{name} must be >= 0 and < 1, got {value!r}.")


def _check_steps(name: str, value: Any) -> None:
    _check_number(name, value)
    if not value >= 0 or (isinstance(value, float) and value > 1):  # false for NaN
        raise OptionError(f"{name} must be a whole number >= 0, or a fraction between 0 and 1, got {value!r}.")


Count: TypeAlias = Annotated[int, Rule(_check_count)]
"""A whole number of at least 1."""
CountOrNone: TypeAlias = Annotated[int, Rule(_check_count_or_none)]
"""A whole number of at least 0; 0 means none."""
Positive: TypeAlias = Annotated[float, Rule(_check_positive)]
"""A number above 0."""
NotNegative: TypeAlias = Annotated[float, Rule(_check_not_negative)]
"""A number of at least 0."""
Fraction: TypeAlias = Annotated[float, Rule(_check_fraction)]
"""A number from 0 to 1, both included."""
Share: TypeAlias = Annotated[float, Rule(_check_share)]
"""A number from 0 to 1, 1 excluded, because a share of everything would leave nothing."""
Steps: TypeAlias = Annotated[int | float, Rule(_check_steps)]
"""A number of steps (int), or a share of the run (float): 500 is every 500 steps, 0.1 a tenth of the run."""


def check_options(options: Any) -> None:
    """Raise `OptionError` for the first field of a dataclass whose value does not match its annotation."""
    for name, check in _checks(type(options)).items():
        try:
            check(name, getattr(options, name))
        except OptionError as error:
            if len(str(error)) > MAX_MESSAGE:  # with a value from a file
                raise OptionError(f"{str(error)[:MAX_MESSAGE]}…") from None
            raise


def _checks(kind: Any) -> dict[str, Callable[[str, Any], None]]:
    if kind not in _CHECKS:
        _CHECKS[kind] = _new_checks(kind)
    return _CHECKS[kind]


_CHECKS: dict[type, dict[str, Callable[[str, Any], None]]] = {}


def _new_checks(kind: Any) -> dict[str, Callable[[str, Any], None]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: _check_for(hints[field.name]) for field in dataclasses.fields(kind)}


def _check_for(hint: Any) -> Callable[[str, Any], None]:
    """Return the check of one annotation.

    None and listed words pass; other values are checked by the rule or the plain type.
    """
    members = _members(hint)
    words = tuple(word for member in members for word in _words(member))
    rules = [note for member in members for note in getattr(member, "__metadata__", ()) if isinstance(note, Rule)]
    plain = [member for member in members if isinstance(member, type) and member is not type(None)]

    def check(name: str, value: Any) -> None:
        if (value is None and type(None) in members) or (isinstance(value, str) and value in words):
            return
        if rules:
            _check_rule(rules[0], name, value, words)
        elif words:
            raise OptionError(f"{name}={value!r} is not valid. Pass one of {', '.join(map(repr, words))}.")
        elif bool in plain:
            if not isinstance(value, bool):
                raise OptionError(f"{name}={value!r} is of type {type(value).__name__}. Pass true or false.")
        elif plain == [str] and not isinstance(value, str):
            raise OptionError(f"{name}={value!r} is of type {type(value).__name__}. Pass text.")
        elif int in plain or float in plain:
            check_whole_number(name, value) if float not in plain else _check_number(name, value)

    return check


def _check_rule(rule: Rule, name: str, value: Any, words: tuple[str, ...]) -> None:
    try:
        rule.check(name, value)
    except OptionError as error:
        if not words:
            raise
        allowed, got, value_shown = str(error).removesuffix(".").partition(", got ")
        raise OptionError(f"{allowed}, or {' or '.join(map(repr, words))}{got}{value_shown}.") from None


def _members(hint: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _words(member: Any) -> tuple[str, ...]:
    return typing.get_args(member) if typing.get_origin(member) is Literal else ()


def fitted(hint: Any, value: Any) -> Any:
    """Return the value in the type of the annotation: a number that YAML read as text (1e-3), or text read as a number.

    >>> fitted(float, "1e-3"), fitted(str, 2020), fitted(int, 5)
    (0.001, '2020', 5)
    """
    members = _members(hint)
    words = tuple(word for member in members for word in _words(member))
    kinds = {kind for member in members for kind in _members(getattr(member, "__origin__", member))}
    if isinstance(value, str) and float in kinds and str not in kinds and value not in words:
        return _as_number(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number and str in kinds and not kinds & {int, float} else value


def _as_number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def option_fields(kind: type) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a config that a user sets, by name; `field(metadata={"option": False})` excludes one."""
    return {field.name: field for field in dataclasses.fields(kind) if field.metadata.get("option", True)}


def option_meanings(kind: Any) -> dict[str, str]:
    """Return the text below each field of a config and its bases; {} if Python runs without source files."""
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            meanings |= _texts_below_fields(typing.cast(type, base))
    return {name: meanings[name] for name in option_fields(kind) if name in meanings}


@functools.cache
def _texts_below_fields(kind: type) -> dict[str, str]:
    try:
        (definition,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError):
        return {}
    meanings: dict[str, str] = {}
    body = getattr(definition, "body", [])
    for field, below in itertools.pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                meanings[name] = " ".join(text.split())
    return meanings
