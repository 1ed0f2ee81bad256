"""JSON files in which one value, or one key, is replaced by something invalid."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

# In the text, these marks are replaced by numbers that json.dumps would not write.
LARGE, LONG = "@1e400@", "@10**5000@"
WRONG = [
    None,
    True,
    -1,
    2**63 - 1,
    2**63,
    0.5,
    LARGE,
    LONG,
    "x",
    "",
    "\x00",
    "\ud800",
    "../x",
    [],
    {},
    [None],
    {"\ud800": 0},
]


def places(content: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the keys that lead to each value."""
    if before:
        yield before
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield from places(value, (*before, key))


def forgeries(content: Any) -> Iterator[tuple[str, Any]]:
    """Return a description of the change, and the changed content."""
    for place in places(content):
        for wrong in WRONG:
            changed = copy.deepcopy(content)
            target = changed
            for key in place[:-1]:
                target = target[key]
            target[place[-1]] = wrong
            yield f"{place} = {wrong!r}", changed
        if isinstance(place[-1], str):
            for key in ("x", "", "\ud800", "\x00"):
                changed = copy.deepcopy(content)
                target = changed
                for step in place[:-1]:
                    target = target[step]
                target[key] = target.pop(place[-1])
                yield f"{place} is now called {key!r}", changed


def dump(content: Any) -> bytes:
    """Return the text of a forged content."""
    text = json.dumps(content, indent=1)
    return text.replace(f'"{LARGE}"', "1e400").replace(f'"{LONG}"', "1" + "0" * 5000).encode()
