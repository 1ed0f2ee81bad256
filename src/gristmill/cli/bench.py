"""gristmill bench: measure this machine, beside every other library that is installed.

An action is a module `bench_<action>.py` with one class, registered in `ACTIONS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import tyro

from gristmill.cli.examples import Examples
from gristmill.cli.values import one_of

# The class of each action, in the module of the same name.
ACTIONS = {
    "train": "Train",
    "encode": "Encode",
    "pipeline": "Pipeline",
    "scaling": "Scaling",
    "ablation": "Ablation",
}


@dataclass(frozen=True, kw_only=True)
class Command:
    """Measure this machine: training, encoding and whole pipelines, beside other installed libraries.

    Every run is a fresh process, the systems run in alternation, and outputs are compared before times. Results are
    written as Markdown, JSON and SVG.
    """

    EXAMPLES: ClassVar[Examples] = (
        ("Compare training in a few seconds.", "gristmill bench train --quick"),
        ("Compare encoding on your own text.", "gristmill bench encode --corpus corpus.txt"),
        ("Compare whole pipelines, from text to token files.", "gristmill bench pipeline"),
        ("Measure what each optimization of training is worth.", "gristmill bench ablation"),
    )

    action: Annotated[str, tyro.conf.Positional, one_of(ACTIONS), tyro.conf.arg(name="ACTION")]
    """What to measure. See 'gristmill bench ACTION --help'."""


def command_class(arguments: Sequence[str]) -> type:
    """Return the class of the action named by the first argument."""
    action = arguments[0] if arguments else ""
    return _class(action) if action in ACTIONS else Command


def every_command() -> list[type]:
    """Return all classes, for shell completion."""
    return [Command, *map(_class, ACTIONS)]


def _class(action: str) -> Any:
    return getattr(importlib.import_module(f"gristmill.cli.bench_{action}"), ACTIONS[action])
