"""Griffe extension: shows doctests without a heading `Examples:` as code, as they are in most docstrings."""

from __future__ import annotations

import re
from typing import Any

import griffe

# A doctest at the margin, up to the next empty line.
_DOCTEST = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.M)


class FencedDoctests(griffe.Extension):  # type: ignore[misc]
    """Put doctests at the margin of a docstring into a code block."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object after it is loaded."""
        if obj.docstring and not obj.is_alias:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return `text` with a code block around each doctest at the margin."""
    return _DOCTEST.sub(lambda match: f"```pycon\n{match[0]}\n```", text)
