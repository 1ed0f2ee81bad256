"""Find the installed systems: an adapter module is imported in a separate process, which may fail or hang.

A system is a name such as `tokenizers`, whose adapter is part of this package, or the dotted name of your own module
with the same interface (see the docstrings of `rivals`, `encoders` and `pipelines`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any

from gristmill.arguments import nearest
from gristmill.bench.fresh_process import ChildFailed, measure, one_line
from gristmill.errors import OptionError

__all__ = ["Adapter", "check_systems", "describe_error", "find_adapters"]

PROBE_SECONDS = 60.0


@dataclass(frozen=True)
class Adapter:
    """One system: its module, the constants of the module, or the reason why it cannot be imported."""

    system: str
    module: str
    facts: Mapping[str, Any]
    problem: str | None = None

    @property
    def distribution(self) -> str:
        """The name for pip; the name of the system if the adapter could not be imported."""
        return str(self.facts.get("DISTRIBUTION", self.system))


def find_adapters(
    names: Sequence[str], *, package: str, known: Sequence[str], needs: Sequence[str] = ()
) -> list[Adapter]:
    """Return the adapter of every system, imported or not.

    Args:
        names: Names of systems, or dotted names of modules; the part after ":" is ignored.
        package: Package of the adapters, such as "gristmill.bench.rivals".
        known: Names of the adapters in that package.
        needs: Constants that every adapter must have, such as "FOLLOWS".

    Raises:
        OptionError: A name is neither known nor dotted.
    """
    check_systems(names, known)
    systems = list(dict.fromkeys(name.partition(":")[0] for name in names))
    modules = [system if "." in system else f"{package}.{system}" for system in systems]
    found = _probe(tuple(modules), tuple(sys.path))
    adapters = [
        Adapter(system, module, facts.get("constants", {}), facts.get("problem") or _incomplete(facts, needs))
        for system, module, facts in zip(systems, modules, found, strict=True)
    ]
    for adapter in adapters:
        if adapter.problem is not None:
            print(f"no result of {adapter.system}: {adapter.problem}", file=sys.stderr)
    if any("." not in each.system and (each.problem or "").startswith("not installed") for each in adapters):
        print("To install the missing libraries, run: pip install 'gristmill[bench]'", file=sys.stderr)
    return adapters


def _incomplete(found: Mapping[str, Any], needs: Sequence[str]) -> str | None:
    """Return which constants a module lacks, or None."""
    missing = [name for name in needs if found["constants"].get(name) is None]
    return f"cannot be used: the module has no {', '.join(missing)}" if missing else None


def check_systems(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise OptionError if a name is neither known nor dotted."""
    for system in (name.partition(":")[0] for name in names):
        if system not in known and "." not in system:
            raise OptionError(
                f"unknown system {system!r}.{nearest(system, known)} Pass {', '.join(known)}, or the dotted name of "
                "your own adapter module."
            )


@cache
def _probe(modules: tuple[str, ...], folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Import all modules in one process, or each in its own if that process fails.

    The result depends on `folders`, from which the process imports. It is kept for further corpora and thread counts.
    """
    try:
        job = {"modules": list(modules)}
        facts = measure(__name__, job, num_threads=1, timeout_seconds=PROBE_SECONDS).facts
        return list(facts["modules"])
    except ChildFailed as reason:
        if len(modules) == 1:
            return [{"problem": str(reason)}]
        return [_probe((module,), folders)[0] for module in modules]


@dataclass(frozen=True)
class ProbeJob:
    """The modules to import."""

    modules: list[str]


JOB = ProbeJob


def run(job: ProbeJob) -> list[dict[str, object]]:
    """Import the modules and return their constants, in the measured process."""
    return [_constants(module) for module in job.modules]


def _constants(name: str) -> dict[str, object]:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        return {"problem": f"not installed: {error.name}"}
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        return {"problem": one_line(f"cannot be imported: {describe_error(error)}")}
    return {"constants": {name: _plain(value) for name, value in vars(module).items() if name.isupper()}}


def describe(found: list[dict[str, object]]) -> dict[str, object]:
    """Return the constants of each module."""
    return {"modules": found}


def _plain(value: Any) -> Any:
    """Return a value that JSON can store; what it cannot store becomes None."""
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    return None


def describe_error(error: BaseException) -> str:
    """Return type and message of an error on one line; a panic of a Rust core has several lines."""
    return one_line(f"{type(error).__name__}: {error}")
