"""Mixture: several folders of shards to train on together, given as "a:0.7 b:0.3" or {"a": 0.7, "b": 0.3}.

This module does not import torch, so the command line can check its arguments quickly.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from gristmill.errors import OptionError
from gristmill.shards import Shards

__all__ = ["Mixture", "OneSource", "TrainSources", "find_mixture"]

OneSource: TypeAlias = "str | os.PathLike[str] | Shards"
TrainSources: TypeAlias = "OneSource | Mapping[str, float] | Mapping[Path, float] | Sequence[OneSource]"


@dataclass(frozen=True)
class Mixture:
    """Sources and their weights. Without weights, the sizes of the sources decide."""

    sources: tuple[OneSource, ...]
    weights: tuple[float, ...] | None

    @property
    def names(self) -> list[str]:
        """Names of the sources: the last part of each path, or the whole path if several end in the same part.

        >>> Mixture(("data/wiki", "data/code"), None).names, Mixture(("a/shards", "b/shards"), None).names
        (['wiki', 'code'], ['a/shards', 'b/shards'])
        """
        paths = [_path(source) for source in self.sources]
        count = Counter(path.name for path in paths)
        return [path.name if path.name and count[path.name] == 1 else str(path) for path in paths]


def find_mixture(data: Any) -> Mixture | None:
    """Return the mixture that `data` describes; None for a single folder, and for values that are not data.

    A string such as "wiki:0.7" is a path with a weight, unless a file or folder has exactly that name.

    >>> find_mixture(["wiki:0.7", "code:0.3"])
    Mixture(sources=('wiki', 'code'), weights=(0.7, 0.3))
    """
    if isinstance(data, Mapping):
        given = list(data.items())
        is_mixture = given and all(_is_source(source) and _is_number(weight) for source, weight in given)
        return _checked(given) if is_mixture else None
    if isinstance(data, str):
        path, weight = _split(data)
        return None if weight is None else _checked([(path, weight)])
    if not isinstance(data, list | tuple) or not data or not all(map(_is_source, data)):
        return None
    given = [_split(source) for source in data]
    # A list in which no path exists and some items have no weight is a list of texts, not a mixture.
    is_mixture = any(_exists(source) for source, _ in given) or all(weight is not None for _, weight in given)
    return _checked(given) if is_mixture else None


def _checked(given: list[tuple[Any, Any]]) -> Mixture:
    for source, weight in given:
        if weight is not None and not 0 < weight < float("inf"):
            raise OptionError(
                f"{_path(source)}: the weight {weight} is not a positive number. Pass a weight > 0, or leave it out."
            )
    with_weight = [source for source, weight in given if weight is not None]
    if with_weight and len(with_weight) < len(given):
        without = next(source for source, weight in given if weight is None)
        bare = str(_path(without)).rstrip(":")
        raise OptionError(
            f"{_path(without)} has no weight, but {_path(with_weight[0])} has one. Write a weight after each, such as "
            f"'{bare}:0.5', or after none to weight sources by their sizes."
        )
    places = Counter(os.path.realpath(_path(source)) for source, _ in given)
    twice = next((_path(source) for source, _ in given if places[os.path.realpath(_path(source))] > 1), None)
    if twice is not None:
        raise OptionError(f"{twice} is given twice. Pass it once, with the sum of its weights.")
    sources = tuple(source for source, _ in given)
    return Mixture(sources, tuple(float(weight) for _, weight in given) if with_weight else None)


def _split(source: Any) -> tuple[Any, float | None]:
    """Return (path, weight) of "path:weight"; (source, None) for an existing path and anything else."""
    if not isinstance(source, str) or _exists(source):
        return source, None
    path, _, number = source.rpartition(":")
    try:
        return (path, float(number)) if path and number == number.strip() else (source, None)
    except ValueError:
        if path and _exists(path):
            what = f"{number!r} is not a weight" if number else "the weight is missing"
            raise OptionError(f"{source}: {what}. Write a number, such as '{path}:0.5'.") from None
        return source, None


def _exists(source: Any) -> bool:
    try:
        return isinstance(source, Shards) or Path(source).exists()
    except OSError:  # a text that is too long for a path
        return False


def _path(source: Any) -> Path:
    if not isinstance(source, Shards):
        return Path(source)
    return source.paths[0].parent if source.paths else Path("shards")


def _is_source(source: Any) -> bool:
    return isinstance(source, str | os.PathLike | Shards)


def _is_number(weight: Any) -> bool:
    return isinstance(weight, int | float) and not isinstance(weight, bool)
