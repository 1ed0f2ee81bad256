"""Describe the conditions of a measurement: machine, versions, date, command."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["describe_machine", "describe_run", "num_cores", "version"]


def num_cores() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_machine() -> dict[str, str]:
    """Return CPU, cores, memory and system of this machine, for the head of a table."""
    return {
        "CPU": _cpu_model(),
        "cores": str(num_cores()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def describe_run(distributions: Iterable[str]) -> dict[str, str]:
    """Return machine, versions, source commit, date and command.

    Args:
        distributions: Names of packages on PyPI, whose versions are listed if they are installed.
    """
    found = {name: version(name) for name in distributions}
    versions = ", ".join(f"{name} {number}" for name, number in found.items() if number != "-")
    about = describe_machine() | {"versions": versions}
    if (commit := _commit()) is not None:
        about["commit"] = commit
    now = datetime.datetime.now(datetime.UTC)
    return about | {"date": now.strftime("%Y-%m-%d %H:%M UTC"), "command": f"`{_command()}`"}


def version(distribution: str) -> str:
    """Return the installed version, or "-" for a package that is not installed."""
    if distribution == "gristmill":
        from gristmill.version import __version__

        return __version__
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "-"


def _command() -> str:
    """Return the command of this process, without the folders of absolute paths, which say nothing to a reader."""
    program = Path(sys.argv[0])
    arguments = [_without_folders(argument) for argument in sys.argv[1:]]
    if program.stem in ("gristmill", "__main__"):
        return shlex.join(["gristmill", *arguments])
    return shlex.join(["python", f"benchmarks/{program.name}", *arguments])


def _without_folders(argument: str) -> str:
    return Path(argument).name if Path(argument).is_absolute() else argument


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine()
    fields = dict(
        line.split(":", 1)
        for line in info.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
        if ":" in line
    )
    facts = {key.strip(): value.strip() for key, value in fields.items()}
    model = facts.get("model name", platform.machine())
    if "cpu family" in facts:
        model += f" (family {facts['cpu family']}, model {facts['model']})"
    flags = facts.get("flags", "").split()
    widest = next((name for name in ("avx512_vbmi2", "avx512bw", "avx2") if name in flags), "")
    return f"{model}, {widest}" if widest else model


def _commit() -> str | None:
    """Return the commit of the source tree; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
