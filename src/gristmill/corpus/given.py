"""`Files` and `Documents`: state explicitly whether a list of strings contains paths or texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, TypeAlias

PathLike: TypeAlias = str | os.PathLike[str]


class Files:
    """Files to read as a corpus: paths, globs, folders and URLs. Its strings are never taken as texts.

    Attributes:
        names: The paths, globs, folders and URLs in the order in which they are read.

    Examples:
        >>> Files("a.txt", "parts/*.txt")
        Files('a.txt', 'parts/*.txt')
        >>> Files(["a.txt", "b.txt"]) == Files("a.txt", "b.txt")
        True
    """

    __slots__ = ("names",)

    def __init__(self, *names: PathLike | Iterable[PathLike] | Files) -> None:
        """Collect the names.

        Args:
            *names: Paths, globs, folders and URLs, or lists of them.

        Raises:
            TypeError: A name is neither `str` nor `pathlib.Path`, or the names are in a set or a table.
        """
        self.names: tuple[PathLike, ...] = tuple(chain.from_iterable(map(_flat, names)))
        for index, name in enumerate(self.names):
            if not isinstance(name, str | os.PathLike):
                raise TypeError(f"name {index} of Files is of type {type(name).__name__}. Pass str or pathlib.Path.")

    def __repr__(self) -> str:
        return f"Files({', '.join(map(repr, self.names))})"

    def __eq__(self, other: object) -> bool:
        return self.names == other.names if isinstance(other, Files) else NotImplemented

    def __hash__(self) -> int:
        return hash((Files, self.names))


class Documents:
    """Documents to use as a corpus: an iterable of `str` or `bytes`. Its strings are never taken as paths.

    As in any corpus, the items may also be rows (dicts with a text field), and `items` may be a table.

    Attributes:
        items: The documents.

    Examples:
        >>> Documents(["Once upon a time.", "The end."])
        Documents(<list of 2>)
    """

    __slots__ = ("items",)

    def __init__(self, items: Iterable[Any]) -> None:
        """Wrap the documents.

        Args:
            items: An iterable of `str` or `bytes`, rows, or a table.

        Raises:
            TypeError: `items` is a single text, a path, `Files`, or not iterable.
        """
        if isinstance(items, str | bytes | bytearray | memoryview):
            raise TypeError(f"Documents takes several texts, got one {type(items).__name__}. Pass Documents([text]).")
        if isinstance(items, os.PathLike | Files):
            raise TypeError(
                f"Documents takes texts, got a {type(items).__name__}, which names files. Pass it without Documents()."
            )
        if not isinstance(items, Documents | Iterable) and not _may_be_table(items):
            raise TypeError(f"Documents takes texts, got a {type(items).__name__}. Pass an iterable of str or bytes.")
        self.items: Iterable[Any] = items.items if isinstance(items, Documents) else items

    def __repr__(self) -> str:
        kind = type(self.items).__name__
        try:
            return f"Documents(<{kind} of {len(self.items):,}>)"  # type: ignore[arg-type]
        except TypeError:
            return f"Documents(<{kind}>)"


def _may_be_table(items: object) -> bool:
    """Whether an object that is not iterable may be a table of another library. `open_table` makes the decision."""
    return any(hasattr(type(items), name) for name in ("__arrow_c_stream__", "schema", "to_reader"))


def _flat(names: PathLike | Iterable[PathLike] | Files) -> Iterable[PathLike]:
    if isinstance(names, Files):
        return names.names
    if isinstance(names, set | frozenset | Mapping):
        raise TypeError(
            f"Files reads names in their order, got a {type(names).__name__}. Pass a list, such as sorted(names)."
        )
    if hasattr(names, "columns"):
        raise TypeError(
            f"Files takes names, got a {type(names).__name__}, which is a table. Pass its column of names, or the "
            f"table itself as the corpus if it holds the texts."
        )
    if isinstance(names, str | bytes | os.PathLike) or not isinstance(names, Iterable):
        return [names]  # the caller raises for a wrong type
    return names
