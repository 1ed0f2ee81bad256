"""Option --text of commands that measure tokenizers: text files, each with an optional name such as a language."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import tyro

from gristmill.cli.values import UsageError

TextFiles: TypeAlias = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(metavar="[NAME=]FILE", help_behavior_hint="(repeatable; default: 1 MB of the sample corpus)"),
]


def named_files(texts: tuple[str, ...]) -> dict[str, str] | None:
    """Return the files by name, or None if there are none. A file without a name is named by its path.

    >>> named_files(("en=english.txt", "code.py"))
    {'en': 'english.txt', 'code.py': 'code.py'}
    """
    files: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        # A path may contain "=". A file of the whole name comes first.
        if not equals or not name or not path or Path(text).exists():
            name = path = text
        if name in files:
            raise UsageError(f"--text {name!r} is given twice. Give each text a different name: NAME=FILE.")
        files[name] = path
    return files or None
