"""Describe the conditions of a measurement: machine, versions, date, command."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def describe_machine() -> dict[str, str]:
    """Return CPU, cores, memory and system of this machine, for the head of a table."""
    return {
        "CPU": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def describe_run(distributions: Iterable[str]) -> dict[str, str]:
    """Return machine, versions, source commit, date and command."""
    versions = ", ".join(f"{name} {version(name)}" for name in distributions)
    now = datetime.datetime.now(datetime.UTC)
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *map(_without_folders, sys.argv[1:])])
    return describe_machine() | {
        "versions": versions,
        "commit": _commit(),
        "date": now.strftime("%Y-%m-%d %H:%M UTC"),
        "command": f"`{command}`",
    }


def version(distribution: str) -> str:
    """Return the installed version, or "-" for a package that is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "-"


def _without_folders(argument: str) -> str:
    return Path(argument).name if Path(argument).is_absolute() else argument


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in info.read_text().split("\n\n")[0].splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in fields.items()}
    model = facts.get("model name", platform.machine())
    if "cpu family" in facts:
        model += f" (family {facts['cpu family']}, model {facts['model']})"
    flags = facts.get("flags", "").split()
    widest = next((name for name in ("avx512_vbmi2", "avx512bw", "avx2") if name in flags), "")
    return f"{model}, {widest}" if widest else model


def _commit() -> str:
    root = Path(__file__).resolve().parent.parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()
