"""Registry: functions by name, built in or added by a user's file.

A registry is a mapping that knows its names without importing anything. Built-in functions are imported on first use.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gristmill.errors import OptionError

__all__ = ["Registry", "accepted_options", "check_parameters"]

_NAME = re.compile(r"[a-z][a-z0-9_-]*")


class Registry(Mapping[str, Callable[..., Any]]):
    """Functions by name.

    >>> shapes = Registry("shape", {"square": "math:sqrt"})
    >>> shapes.register("half", lambda x: x / 2)
    >>> list(shapes), shapes["square"](9.0), shapes["half"](9.0)
    (['square', 'half'], 3.0, 4.5)
    """

    def __init__(self, kind: str, built_in: Mapping[str, str]) -> None:
        """`kind` names the functions in messages; `built_in` maps names to "module:function"."""
        self._kind = kind
        self._entries: dict[str, Callable[..., Any] | str] = dict(built_in)

    def register(self, name: str, function: Callable[..., Any], *, overwrite: bool = False) -> None:
        """Add a function. A name that is already registered raises `OptionError` unless `overwrite`."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise OptionError(
                f"name={name!r} is not a valid name of {_a(self._kind)}. Use lowercase letters, digits, '-' and '_', "
                f"starting with a letter."
            )
        if not callable(function):
            raise OptionError(f"{self._kind} {name!r} is of type {type(function).__name__}. Pass a function.")
        if name in self._entries and not overwrite and self[name] is not function:
            raise OptionError(
                f"{self._kind} {name!r} already exists. Choose another name, or pass overwrite=True to replace it."
            )
        self._entries[name] = function

    def check(self, name: str, argument: str) -> None:
        """Raise `OptionError` for an unknown name, which was passed as `argument`."""
        if name not in self._entries:
            raise OptionError(
                f"{argument}={name!r} is not valid. Pass one of {', '.join(map(repr, self._entries))}, or add your own "
                f"with register_{self._kind}."
            )

    def __getitem__(self, name: str) -> Callable[..., Any]:
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(importlib.import_module(module), attribute)
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


def check_parameters(what: str, function: Callable[..., Any], allowed: tuple[str, ...]) -> None:
    """Raise `OptionError` for a function with a required parameter, besides the first, that callers do not pass."""
    if not callable(function):
        return  # rejected by `Registry.register`
    _, *rest = inspect.signature(function).parameters.values() or (None,)
    for parameter in rest:
        is_needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if is_needed and parameter.name not in allowed:
            raise OptionError(
                f"{what} has a required parameter {parameter.name!r}, which is not passed. Allowed are parameters "
                f"named {', '.join(allowed)}, and others with defaults."
            )


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def accepted_options(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the function has a parameter for; all of them if it takes `**options`.

    >>> accepted_options(lambda model, *, lr: None, {"lr": 0.1, "eps": 1e-8})
    {'lr': 0.1}
    """
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(options)
    return {name: value for name, value in options.items() if name in parameters}
