"""Examples at the end of the help of each command.

A command class lists them in `EXAMPLES` as pairs: a short note, and the line to type. The documentation shows them too.
"""

from __future__ import annotations

from typing import TypeAlias

Examples: TypeAlias = tuple[tuple[str, str], ...]


def examples_text(examples: Examples) -> str:
    """Return the examples as --help shows them.

    >>> examples_text((("Check a folder of shards.", "gristmill verify shards"),)).splitlines()
    ['examples:', '  # Check a folder of shards.', '  gristmill verify shards']
    """
    return "\n\n".join(
        ("examples:\n" if number == 0 else "") + f"  # {note}\n  {line}" for number, (note, line) in enumerate(examples)
    )
