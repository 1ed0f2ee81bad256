"""Commands in children of this process, which inherit its imports, under strace if a system call is to fail.

A child starts in milliseconds, so that a command can be run with a fault at each of its system calls.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gristmill.cli import main

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
CRASH = 70  # exit status of a child that ends with an exception which the command line does not handle
DEADLINE_SECONDS = 60


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    status: int  # exit status, or minus the signal that ended it
    text: str  # stdout and stderr

    @property
    def errors(self) -> list[str]:
        """The lines that report an error; a traceback counts as one."""
        return [line for line in self.text.splitlines() if line.startswith(("gristmill: error", "Traceback"))]

    @property
    def was_killed(self) -> bool:
        return self.status == -signal.SIGKILL


def command(
    *arguments: str, inject: tuple[str, ...] = (), cwd: Path, before: Callable[[], None] | None = None
) -> Ended:
    """Run a command of the command line in a child, with `-e inject=...` of strace for each of `inject`.

    strace counts the calls of each thread, and of each system call, separately.
    """

    def work() -> int:
        os.chdir(cwd)
        if before is not None:
            before()
        return main(list(arguments))

    return call(work, inject=inject, log=cwd.with_name(f"{cwd.name}.log"))


def call(work: Callable[[], int | None], *, inject: tuple[str, ...] = (), log: Path) -> Ended:
    """Call a function in a child and return how the child ended. Its output goes to `log`, which is removed."""
    child, release = start(work, log)
    tracer = None
    try:
        if inject:
            tracer = _trace(child, inject, log.with_suffix(".strace"))
        os.write(release, b"x")
        return wait(child, log)
    finally:
        os.close(release)
        if tracer is not None:
            tracer.wait(DEADLINE_SECONDS)
            log.with_suffix(".strace").unlink(missing_ok=True)
        log.unlink(missing_ok=True)


def start(work: Callable[[], int | None], log: Path) -> tuple[int, int]:
    """Fork a child; return its process id, and the pipe on which it waits for a byte."""
    log.touch()
    ready, release = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(release)
        _be_the_child(work, ready, log)
    os.close(ready)
    return child, release


def wait(child: int, log: Path, *, seconds: float = DEADLINE_SECONDS) -> Ended:
    """Wait for a child. A child that takes too long is killed and fails the test."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return Ended(os.waitstatus_to_exitcode(status), log.read_text(errors="replace"))
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail(f"the child did not end within {seconds} s: {log.read_text(errors='replace')}")
        time.sleep(0.002)


def _be_the_child(work: Callable[[], int | None], ready: int, log: Path) -> None:
    code = CRASH
    try:
        file = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        # pytest has replaced these by objects that keep the output for its own report.
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.read(ready, 1)
        code = work() or 0
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _trace(child: int, inject: tuple[str, ...], log: Path) -> subprocess.Popen[bytes]:
    options = [option for each in inject for option in ("-e", f"inject={each}")]
    calls = ",".join(dict.fromkeys(call for each in inject for call in each.partition(":")[0].split(",")))
    tracer = subprocess.Popen(
        ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={calls}", *options, "-p", str(child)],
        stderr=subprocess.DEVNULL,
    )
    status = Path(f"/proc/{child}/status")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while "TracerPid:\t0\n" in status.read_text():
        if tracer.poll() is not None or time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.skip("strace cannot attach to a process here")
        time.sleep(0.001)
    return tracer
