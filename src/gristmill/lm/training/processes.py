"""The processes of a run on several devices: one per device, all started by the first, which reports for all of them.

The first process runs its own command line again for each of the other devices. It keeps what they print and shows it
only if one of them fails, as part of one error; with GRISTMILL_DEBUG=1 it shows every line. The others are in a session
of their own, so that Ctrl-C reaches the first one only, and all agree on when to stop. They end with the first one,
whatever ended it.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from gristmill.errors import OptionError, TrainingError

__all__ = ["end_with_parent", "is_first_process", "joining", "one_error", "start_others"]

PARENT = "GRISTMILL_PARENT_PROCESS"
POLL_SECONDS = 0.2
# After another process has ended: how long the first one may take to notice it by itself and clean up. While it joins
# the others it has nothing to clean up; while it trains it may be writing a checkpoint.
JOINING_SECONDS, TRAINING_SECONDS = 1.0, 30.0
ENDING_SECONDS = 10.0


def is_first_process() -> bool:
    """Whether this is the process that others are started from, or would be."""
    return all(int(os.environ.get(name, "0")) == 0 for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))


# In the first process


def start_others(strategy: Any) -> None:
    """Start one process for each of the other devices of `strategy` on this machine, unless they are there already.

    Lightning's own launcher shows the errors of all processes at once, and ends the first one without a message when
    another one fails. It starts none where it finds LOCAL_RANK in the environment.
    """
    global _others
    launcher = getattr(strategy, "launcher", None)
    if launcher is None or launcher.is_interactive_compatible:
        return
    environment = strategy.cluster_environment
    if environment.creates_processes_externally:
        return
    command, num_local = _this_command(), int(strategy.num_processes)
    os.environ |= {
        "MASTER_ADDR": str(environment.main_address),
        "MASTER_PORT": str(environment.main_port),
        "NODE_RANK": str(environment.node_rank()),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(num_local * int(strategy.num_nodes)),
    }
    _others = _Others(command, range(1, num_local))


def _this_command() -> list[str]:
    """The command line that runs this program again."""
    has_script = hasattr(sys.modules["__main__"], "__file__") or sys.argv[:1] == ["-c"]
    if not has_script:
        raise OptionError(
            "devices > 1 runs the program once for each device, and an interactive session cannot be run again. "
            "Write it to a file and run that, or pass devices=1."
        )
    return [sys.executable, *sys.orig_argv[1:]]


@contextlib.contextmanager
def joining() -> Iterator[None]:
    """Within the block this process waits for the others to join it; one that has ended ends the program."""
    if _others is None:
        yield
        return
    _others.patience = JOINING_SECONDS
    yield
    _others.patience = TRAINING_SECONDS


@contextlib.contextmanager
def one_error() -> Iterator[None]:
    """An error in the block is the only one of the run: the other processes end, and theirs is raised if it came first.

    `TrainingError` where another process failed and this one only noticed that it was gone.
    """
    try:
        yield
    except BaseException as error:
        if _others is None:
            raise
        _others.patience = None
        try:
            reason = _others.first_failure() if _is_lost_peer(error) else None
        finally:
            _others.kill()
        if reason is not None:
            raise TrainingError(reason) from None
        raise
    if _others is not None:
        _others.patience = None


def _is_lost_peer(error: BaseException) -> bool:
    """Whether the error is about the connection to another process, and so not the cause but a consequence."""
    lost = getattr(torch.distributed, "DistError", ())
    return isinstance(error, lost) or (type(error) is RuntimeError and _tells_of_lost_peer(str(error)))


def _tells_of_lost_peer(text: str) -> bool:
    return re.search(r"gloo|nccl|torch\.distributed\.Dist\w*Error|TCPStore", text, re.IGNORECASE) is not None


class _Other:
    """The process of another device."""

    def __init__(self, command: list[str], local_rank: int, environment: Mapping[str, str]) -> None:
        self.local_rank = local_rank
        self.process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._lines: collections.deque[str] = collections.deque(maxlen=1000)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        shown = os.environ.get("GRISTMILL_DEBUG", "") not in ("", "0")
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line.rstrip("\n"))
            if shown:
                print(f"[device {self.local_rank}] {line}", end="", file=sys.stderr, flush=True)

    def failure(self, num_local: int) -> str:
        """Why it ended, in a sentence."""
        self._reader.join(timeout=1.0)  # a process that it started may hold the pipe open
        name, code = f"the process of device {self.local_rank} (of 0 to {num_local - 1})", self.process.returncode
        hint = "Set GRISTMILL_DEBUG=1 to see all that it prints."
        if code < 0:
            memory = ", often because the memory of the machine was used up" * (code == -signal.SIGKILL)
            return f"{name} was ended by {signal.Signals(-code).name}{memory}. {hint}"
        last = error_line(list(self._lines))
        return f"{name} failed: {last}" if last else f"{name} ended with exit code {code}. {hint}"


def error_line(lines: list[str]) -> str:
    """The line of an error in what a process printed; "" where it printed nothing.

    >>> error_line(["Traceback (most recent call last):", "  File x", "ValueError: too long", "a warning at exit"])
    'ValueError: too long'
    """
    plain = "gristmill: error: "
    lines = [re.sub(r"^\[rank\d+\]: ?", "", line) for line in lines]  # torch puts it before each line of a traceback
    for number in reversed(range(len(lines))):
        if lines[number].startswith(plain):
            return lines[number].removeprefix(plain)
        if lines[number].startswith("Traceback "):
            found = next((line for line in lines[number + 1 :] if line and not line.startswith(" ")), "")
            return re.sub(r"^gristmill\.errors\.\w+: ", "", found)
    return next((line for line in reversed(lines) if line.strip()), "")


class _Others:
    """All processes that this one has started, and the thread that notices when one of them ends."""

    def __init__(self, command: list[str], local_ranks: range) -> None:
        # Seconds that this process gets to end after another one did; None: nobody waits for the others.
        self.patience: float | None = None
        shared = {**os.environ, PARENT: str(os.getpid())}
        self._all = [_Other(command, rank, {**shared, "LOCAL_RANK": str(rank)}) for rank in local_ranks]
        atexit.register(self._end)
        threading.Thread(target=self._watch, daemon=True).start()

    def _ended(self) -> list[_Other]:
        return [other for other in self._all if other.process.poll() is not None]

    def _watch(self) -> None:
        """End the program when it waits for a process that is gone: a collective on a GPU would wait for minutes."""
        since: float | None = None
        while True:
            time.sleep(POLL_SECONDS)
            patience = self.patience
            if patience is None or not self._ended():
                since = None
                continue
            since = since or time.monotonic()
            if time.monotonic() - since > patience:
                self._give_up(self.first_failure())

    def _give_up(self, reason: str | None) -> None:
        self.kill()
        with contextlib.suppress(OSError, ValueError):
            print(f"\ngristmill: error: {reason}", file=sys.stderr, flush=True)
        os._exit(1)  # the main thread is in a collective, where no exception reaches it

    def first_failure(self) -> str | None:
        """Why another process failed; None if none does within a few seconds. One that only lost a peer is no cause."""
        deadline = time.monotonic() + ENDING_SECONDS
        while True:
            reasons = [other.failure(len(self._all) + 1) for other in self._ended()]
            causes = [reason for reason in reasons if not _tells_of_lost_peer(reason)]
            if causes or len(reasons) == len(self._all) or time.monotonic() > deadline:
                return next(iter([*causes, *reasons]), None)
            time.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """End all of them at once. Only the first process writes, so nothing is lost."""
        for other in self._all:
            other.process.kill()
            other.process.wait()

    def _end(self) -> None:
        """At the end of the program: let the others finish theirs."""
        deadline = time.monotonic() + ENDING_SECONDS
        for other in self._all:
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        self.kill()


_others: _Others | None = None


# In the other processes


def end_with_parent() -> None:
    """In a process that was started for another device: end when the first process has, whatever ended that.

    A process in a collective with peers that are gone would otherwise stay for good: it only notes a SIGTERM.
    """
    parent = os.environ.pop(PARENT, None)
    if parent is not None and os.name == "posix":
        threading.Thread(target=_wait_for_end_of, args=(int(parent),), daemon=True).start()


def _wait_for_end_of(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)
