"""Values of options: names to choose from, numbers such as 32k, sizes such as 512MB.

Each function returns a value type for the `Annotated[…]` of an option. tyro's own types print a box that does not name
the nearest choice or the accepted forms. An invalid number raises `UsageError`; `gristmill.cli.usage` checks names
before tyro parses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

__all__ = [
    "Choice",
    "UsageError",
    "byte_size",
    "one_of",
    "parse_count",
    "parse_size",
    "registry",
    "several",
    "whole_number",
]


class UsageError(Exception):
    """Wrong or incompatible options; exit code 2. Not a ValueError, because tyro prints those in a box."""


@dataclass(frozen=True)
class Choice(PrimitiveConstructorSpec[Any]):
    """An option value that is one of `names`. `gristmill.cli.usage` checks it; shell completion offers the names."""

    names: tuple[str, ...] = ()


def one_of(names: Iterable[str]) -> Choice:
    """Return the type of an option value that is one of `names`; help lists them."""
    known = tuple(names)
    return Choice(
        nargs=1,
        metavar=f"{{{','.join(known)}}}",
        instance_from_str=lambda values: values[0],
        is_instance=lambda value: value is None or isinstance(value, str),
        str_from_instance=lambda value: [str(value)],
        names=known,
    )


def whole_number(option: str) -> PrimitiveConstructorSpec[Any]:
    """Return the type of an option value that is a count: digits, or a form such as 32k."""
    return _number(option, "N", parse_count)


def byte_size(option: str) -> PrimitiveConstructorSpec[Any]:
    """Return the type of an option value that is a number of bytes: digits, or a form such as 512MB."""
    return _number(option, "SIZE", parse_size)


def several(metavar: str) -> PrimitiveConstructorSpec[Any]:
    """Return the type of an option with any number of values; None if the option is not given."""
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=metavar,
        instance_from_str=tuple,
        is_instance=lambda value: value is None or isinstance(value, tuple),
        str_from_instance=lambda value: list(value or ()),
    )


def registry() -> ConstructorRegistry:
    """Return the rule by which tyro parses integers of options without a type from here, such as model options.

    If the text is not an integer, tyro tries the next type of the union, such as float or None. `check_usage` has
    already rejected text that fits no type.
    """
    rules = ConstructorRegistry()

    @rules.primitive_rule
    def _whole_number(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if kind.type is not int:
            return None
        return _number("", "INT", lambda text, _: _count_or_value_error(text))

    return rules


def _count_or_value_error(text: str) -> int:
    try:
        return parse_count(text, "")
    except UsageError as error:
        raise ValueError(str(error)) from None  # tyro tries the next type


def _number(option: str, metavar: str, parse: Callable[[str, str], int]) -> PrimitiveConstructorSpec[Any]:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda values: parse(values[0], option),
        is_instance=lambda value: value is None or isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


_NUMBER = r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?|[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:\.[0-9]+)?e[0-9]{1,2}"
_COUNT = re.compile(rf"(-?(?:{_NUMBER})) ?(?:([kmgt])(i?))?", re.IGNORECASE | re.ASCII)
_SIZE = re.compile(rf"({_NUMBER}) ?(?:([kmgt])(i?))?b?", re.IGNORECASE | re.ASCII)
_EXPONENTS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_count(text: str, option: str) -> int:
    """Return a count: k, M, G and T are powers of 1,000; Ki, Mi, Gi and Ti are powers of 1,024.

    >>> [parse_count(text, "--vocab-size") for text in ("512", "50_000", "32k", "1.5M", "64Ki", "1e6")]
    [512, 50000, 32000, 1500000, 65536, 1000000]
    """
    number = _parsed(_COUNT, text)
    if number is None or number.denominator != 1:
        raise UsageError(
            f"{_named(option, text)} is not a whole number. Pass digits, or a form such as 32k, 1.5M or 64Ki."
        )
    return int(number)


def parse_size(text: str, option: str) -> int:
    """Return a number of bytes.

    >>> [parse_size(text, "--size") for text in ("512", "50MB", "2GiB", "1.5k")]
    [512, 50000000, 2147483648, 1500]
    """
    number = _parsed(_SIZE, text)
    if number is None:
        raise UsageError(
            f"{_named(option, text)} is not a size. Pass bytes, or a form such as 512MB (10^6) or 2GiB (2^30)."
        )
    return round(number)


def _parsed(form: re.Pattern[str], text: str) -> Fraction | None:
    """Return the number that `text` spells in this form, or None if it does not match."""
    match = form.fullmatch(text.strip())
    if match is None:
        return None
    unit: int = (1024 if match[3] else 1000) ** _EXPONENTS[(match[2] or "").lower()]
    return Fraction(match[1].replace("_", "").replace(",", "")) * unit


def _named(option: str, text: str) -> str:
    return f"{option} {text!r}".strip()
