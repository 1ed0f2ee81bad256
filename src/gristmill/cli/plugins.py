"""--plugin: a Python file that registers the user's models, optimizers or schedules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import tyro

from gristmill.cli.values import UsageError

Plugin: TypeAlias = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="FILE",
        help="Python file to run first. It registers your own model, optimizer or schedule.",
        help_behavior_hint="",
    ),
]


def load_plugin(path: Path | None) -> None:
    """Run the file, once per process. Raise `UsageError` if it is missing or fails."""
    if path is None:
        return
    name = f"gristmill_plugin_{path.stem}"
    if getattr(sys.modules.get(name), "__file__", None) == str(path.resolve()):
        return
    if path.is_dir():
        raise UsageError(f"--plugin {path} is a folder. Pass a .py file.")
    if not path.is_file():
        raise UsageError(f"--plugin {path} does not exist. Pass the path of a .py file.")
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UsageError(f"--plugin {path} is not a Python file. Pass a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"--plugin {path} failed{_line_in(error, path)}: {reason}") from error


def _line_in(error: BaseException, path: Path) -> str:
    """Return the line of the file at which the error was raised."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path.resolve()):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" in line {line}" if line else ""
