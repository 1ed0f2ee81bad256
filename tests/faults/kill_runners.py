"""How a command is started, in a fresh process or a forked one, and how its processes are found and killed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from faults.kills import Scenario

LIMIT_SECONDS = 300.0  # of one run; a longer one counts as a hang
TAG = "GRISTMILL_KILL_TAG"  # environment variable by which all processes of a run are found


class Running(ABC):
    """A command that runs in a process group of its own."""

    pid: int

    @abstractmethod
    def wait(self, seconds: float) -> int | None:
        """Return the exit code, negative for a signal; None if the command still runs after this time."""


class Runner(ABC):
    """Starts commands."""

    name: ClassVar[str]

    @abstractmethod
    def start(self, arguments: list[str], folder: Path, environment: dict[str, str], log: Path) -> Running:
        """Start `gristmill` with these arguments in a folder; its output goes to the file `log`."""

    def close(self) -> None:  # noqa: B027  most runners hold nothing
        """End what the runner has started."""


class _ColdProcess(Running):
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def wait(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


class ColdRunner(Runner):
    """Starts a fresh Python for each command, as a shell does."""

    name = "cold"

    def start(self, arguments: list[str], folder: Path, environment: dict[str, str], log: Path) -> Running:
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "gristmill", *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return _ColdProcess(process)


class _WarmProcess(Running):
    def __init__(self, runner: WarmRunner, pid: int) -> None:
        self._runner, self.pid = runner, pid
        self._status: int | None = None

    def wait(self, seconds: float) -> int | None:
        if self._status is None:
            self._status = self._runner.status_within(seconds)
        return None if self._status is None else os.waitstatus_to_exitcode(self._status)


class WarmRunner(Runner):
    """Forks each command from a process that has imported everything: `warm.py`. One command at a time."""

    name = "warm"

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm.py")), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
        )
        self._received = b""

    def start(self, arguments: list[str], folder: Path, environment: dict[str, str], log: Path) -> Running:
        request = {"arguments": arguments, "folder": str(folder), "environment": environment, "log": str(log)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        pid = self._number_within(LIMIT_SECONDS)
        assert pid is not None, "the warm process does not answer"
        return _WarmProcess(self, pid)

    def status_within(self, seconds: float) -> int | None:
        """Return the wait status of the command that was started last; None if it still runs."""
        return self._number_within(seconds)

    def _number_within(self, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        pipe = self._process.stdout
        assert pipe is not None
        while b"\n" not in self._received:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            data = os.read(pipe.fileno(), 1 << 12)
            assert data, "the warm process has ended"
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return int(line)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def warm_modules(*scenarios: Scenario) -> tuple[str, ...]:
    """Return the modules that the process of a `WarmRunner` imports for these scenarios."""
    needs = {name for one in scenarios for name in one.needs}
    modules = ["gristmill.cli", "gristmill.shards.run", "gristmill.count.distributed", "gristmill.shards.distributed"]
    modules += ["pyarrow.parquet"] * ("pyarrow" in needs) + ["ray"] * ("ray" in needs)
    return (*modules, *(["gristmill.lm.training.trainer"] if "torch" in needs else []))


# Processes of a run


def processes_of(tag: str) -> dict[int, bytes]:
    """Return the command lines of the running processes with this tag in their environment."""
    wanted = f"{TAG}={tag}\0".encode()
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                process = Path(entry.path)
                state = (process / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if state != b"Z" and wanted in (process / "environ").read_bytes() + b"\0":
                    found[int(entry.name)] = (process / "cmdline").read_bytes()
    return found


def kill_process(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
