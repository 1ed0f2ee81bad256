"""`Kind`: one kind of work."""

from __future__ import annotations

import hashlib
import importlib
import random
from collections.abc import Mapping
from pathlib import Path

from soaking import KINDS


class Kind:
    """One kind of work, as operations that check their own results.

    root: The folder of the whole run, with `inputs`.
    folder: A folder for this kind alone.
    """

    process = "pipeline"  # kinds with the same name share a process
    num_threads = 1
    needs_inputs = True

    def __init__(self, root: Path, folder: Path, seed: int) -> None:
        self.root, self.inputs, self.folder, self.seed = root, root / "inputs", folder, seed

    def prepare(self) -> None:
        """Make what the operations need, such as expected results. Called once, before the work begins."""

    def work(self, source: random.Random, thread: int) -> str:
        """Do one operation and return its name. Raises if the result is wrong."""
        raise NotImplementedError

    def watched(self) -> Mapping[str, int]:
        """Return other long-lived processes by name, whose memory must not grow either."""
        return {}

    def close(self) -> None:
        """Stop what `prepare` has started. Raises if it was not in order."""


def kind_class(name: str) -> type[Kind]:
    """Return the class of a kind from its name in `KINDS`, or from "module:Class"."""
    module, _, attribute = KINDS.get(name, name).partition(":")
    found: type[Kind] = getattr(importlib.import_module(module), attribute)
    return found


def check_equal(found: object, expected: object, about: str) -> None:
    """Raise an AssertionError that shows the beginning of both values if they differ."""
    if found != expected:
        raise AssertionError(f"{about}: expected {str(expected)[:400]}, got {str(found)[:400]}")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below `folder`, hidden ones too."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
