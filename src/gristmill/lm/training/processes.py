"""The processes of a run on several devices: one per device, and one error for all of them.

Without a launcher, the first process starts all others and reports their errors.

The first process runs its own command line again for each of the other devices. It stores their output and shows it
only if one of them fails, as part of one error; with GRISTMILL_DEBUG=1 it shows every line. The other processes are in
a separate session, so that Ctrl-C reaches only the first one and all stop at the same step. They exit when the first
one exits for any reason.
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
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from gristmill.errors import OptionError, TrainingError
from gristmill.lm.training.launchers import find_world, num_restarts

__all__ = [
    "end_with_parent",
    "join_others",
    "joining",
    "naming_lost_processes",
    "one_error",
    "same_outcome",
    "start_others",
]

PARENT = "GRISTMILL_PARENT_PROCESS"
POLL_SECONDS = 0.2
# Time for the first process to notice that another one has exited, and to clean up. There is nothing to clean up while
# it joins the others. While it trains, it may be writing a checkpoint.
JOINING_SECONDS, TRAINING_SECONDS = 1.0, 30.0
ENDING_SECONDS = 10.0
# Time for the remaining processes of a run to notice that one has exited, and to report that they are still running.
ANSWER_SECONDS = 4.0


# In the first process


def start_others(strategy: Any) -> None:
    """Start one process for each of the other devices of `strategy` on this machine, unless a launcher has.

    Lightning's own launcher shows the errors of all processes at once, and ends the first one without a message when
    another one fails. It starts no processes if LOCAL_RANK is in the environment, which is set here.
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
    if num_local > 1:
        _others = _Others(command, range(1, num_local))


def _this_command() -> list[str]:
    """Return the command line that runs this program again."""
    has_script = hasattr(sys.modules["__main__"], "__file__") or sys.argv[:1] == ["-c"]
    if not has_script:
        raise OptionError(
            "devices > 1 runs the program once for each device, which is not possible in an interactive session. "
            "Write the program to a file and run that, or pass devices=1."
        )
    return [sys.executable, *sys.orig_argv[1:]]


@contextlib.contextmanager
def joining() -> Iterator[None]:
    """Wait for the others to join within the block. If one of them exits, the program ends."""
    if _others is None:
        yield
        return
    _others.patience = JOINING_SECONDS
    yield
    _others.patience = TRAINING_SECONDS


@contextlib.contextmanager
def one_error() -> Iterator[None]:
    """On an error in the block, end the other processes and raise only one error for the run.

    Raises `TrainingError` with the error of another process if that one failed first and this one only lost the
    connection.
    """
    try:
        yield
    except BaseException as error:
        if _others is None:
            with naming_lost_processes():
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


@contextlib.contextmanager
def naming_lost_processes() -> Iterator[None]:
    """Convert an error about a lost connection, in a run started by a launcher, to one that names the lost process.

    It is marked `is_shown_by_first` if a process of a lower rank on this machine raises it too.
    """
    try:
        yield
    except Exception as error:
        if _others is not None or not _is_lost_peer(error):
            raise
        raise _error_of_lost() from None


def _is_lost_peer(error: BaseException) -> bool:
    """Return whether the error is about the connection to another process, and so a consequence and not the cause."""
    lost = getattr(torch.distributed, "DistError", ())
    return isinstance(error, lost) or (type(error) is RuntimeError and _is_about_lost_peer(str(error)))


def _is_about_lost_peer(text: str) -> bool:
    return re.search(r"gloo|nccl|torch\.distributed\.Dist\w*Error|TCPStore", text, re.IGNORECASE) is not None


def _error_of_lost() -> TrainingError:
    """Return the error of a process that has lost the connection to another. It names those that do not answer."""
    if not torch.distributed.is_initialized():
        return TrainingError(
            "the processes of the run could not connect to each other. Start all of them at about the same time, and "
            "check that each machine can reach MASTER_ADDR and MASTER_PORT of the first one."
        )
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    silent = _silent_ranks(rank, size)
    named = " and ".join(map(str, sorted(silent))) or "unknown rank"
    error = TrainingError(
        f"the process of rank {named} (of 0 to {size - 1}) has ended or does not answer, so the run ends. See its "
        f"output and that of the launcher for the reason. Often its machine had too little memory. Start all processes "
        f"again with resume='auto' to resume from the last checkpoint."
    )
    world = find_world()
    num_local = 1 if world is None else world.devices
    error.is_shown_by_first = not reports_for_machine(rank, num_local, silent)  # type: ignore[attr-defined]
    return error


def _silent_ranks(rank: int, size: int) -> set[int]:
    """Return the ranks that do not answer.

    All remaining processes write a key to the store of the run. A process that does not has exited or hangs.
    """
    silent = {number for number in range(size) if number != rank}
    try:
        store = _rendezvous.store
        store.set(f"left/{rank}", "")
        deadline = time.monotonic() + ANSWER_SECONDS
        while silent and time.monotonic() < deadline:
            silent = {number for number in silent if not store.check([f"left/{number}"])}
            time.sleep(POLL_SECONDS)
    except RuntimeError:  # the process with the store has exited; it may have answered before
        silent = {0} if 0 in silent else silent
    return silent


def reports_for_machine(rank: int, num_local: int, silent: Collection[int]) -> bool:
    """Return whether this process has the lowest rank of those on its machine that still answer.

    >>> [reports_for_machine(rank, 4, {0}) for rank in (1, 2, 3, 4, 5)]
    [True, False, False, True, False]
    """
    return all(lower in silent for lower in range(rank - rank % num_local, rank))


@contextlib.contextmanager
def same_outcome() -> Iterator[None]:
    """Raise an error of any process in all processes of the run, so that none waits for one that has exited.

    Collective: all processes enter and leave the block. Does nothing with a single process. In other processes, an
    error that the first one has too is marked `is_shown_by_first`.
    """
    failed: Exception | None = None
    try:
        yield
    except Exception as error:
        failed = error
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        found: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(found, _as_plain(failed))
        first = next(((rank, plain) for rank, plain in enumerate(found) if plain is not None), None)
        if failed is None and first is not None:
            failed = _from_plain(*first)
        if failed is not None and torch.distributed.get_rank() > 0 and found[0] is not None:
            failed.is_shown_by_first = True  # type: ignore[attr-defined]
    if failed is not None:
        raise failed


def _as_plain(error: Exception | None) -> tuple[int | None, str, str | None] | None:
    """Return (errno, message, file name) of an error, from which another process raises an equivalent error."""
    if error is None:
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno, str(error.strerror), None if error.filename is None else str(error.filename)
    return None, str(error) or type(error).__name__, None


def _from_plain(rank: int, plain: tuple[int | None, str, str | None]) -> Exception:
    number, message, filename = plain
    if number is not None:
        return OSError(number, message, filename)
    return TrainingError(f"the process of rank {rank} failed: {message}")


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
        """Return a sentence about why the process ended."""
        self._reader.join(timeout=1.0)  # a child of the process may keep the pipe open
        name, code = f"the process of device {self.local_rank} (of 0 to {num_local - 1})", self.process.returncode
        hint = "Set GRISTMILL_DEBUG=1 to see its output."
        if code < 0:
            memory = ", often because the machine had too little memory" * (code == -signal.SIGKILL)
            return f"{name} was killed by {signal.Signals(-code).name}{memory}. {hint}"
        last = error_line(list(self._lines))
        return f"{name} failed: {last}" if last else f"{name} ended with exit code {code}. {hint}"


def error_line(lines: list[str]) -> str:
    """Return the line with the error in the output of a process; "" without output.

    >>> error_line(["Traceback (most recent call last):", "  File x", "ValueError: too long", "a warning at exit"])
    'ValueError: too long'
    """
    plain = "gristmill: error: "
    lines = [re.sub(r"^\[rank\d+\]: ?", "", line) for line in lines]  # torch's prefix of each line of a traceback
    for number in reversed(range(len(lines))):
        if lines[number].startswith(plain):
            return lines[number].removeprefix(plain)
        if lines[number].startswith("Traceback "):
            found = next((line for line in lines[number + 1 :] if line and not line.startswith(" ")), "")
            return re.sub(r"^gristmill\.errors\.\w+: ", "", found)
    return next((line for line in reversed(lines) if line.strip()), "")


class _Others:
    """All processes that this one has started, and a thread that notices when one of them exits."""

    def __init__(self, command: list[str], local_ranks: range) -> None:
        # Seconds that this process has to exit after another one did. None: no process waits for the others.
        self.patience: float | None = None
        shared = {**os.environ, PARENT: str(os.getpid())}
        self._all = [_Other(command, rank, {**shared, "LOCAL_RANK": str(rank)}) for rank in local_ranks]
        atexit.register(self._end)
        threading.Thread(target=self._watch, daemon=True).start()

    def _ended(self) -> list[_Other]:
        return [other for other in self._all if other.process.poll() is not None]

    def _watch(self) -> None:
        """End the program if it waits for an exited process. A collective on a GPU would wait for minutes."""
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
        os._exit(1)  # the main thread is blocked in a collective and cannot receive an exception

    def first_failure(self) -> str | None:
        """Return why another process failed, or None if none fails within a few seconds.

        Prefers a process that did not merely lose the connection to another one.
        """
        deadline = time.monotonic() + ENDING_SECONDS
        while True:
            reasons = [other.failure(len(self._all) + 1) for other in self._ended()]
            causes = [reason for reason in reasons if not _is_about_lost_peer(reason)]
            if causes or len(reasons) == len(self._all) or time.monotonic() > deadline:
                return next(iter([*causes, *reasons]), None)
            time.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """Kill all of them. No data is lost: a checkpoint that they take part in is complete or has failed."""
        for other in self._all:
            other.process.kill()
            other.process.wait()

    def _end(self) -> None:
        """Give the others time to finish at the end of the program, then kill them."""
        deadline = time.monotonic() + ENDING_SECONDS
        for other in self._all:
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        self.kill()


_others: _Others | None = None


# In all processes


class _Rendezvous:
    """The rendezvous of the processes of this program: one store for all its runs, with a prefix for each run.

    A store per run would not work. The store of torchrun exists as long as the program and has the addresses of the
    previous run. In a run without launcher, the first process may still have the old store open when others look for
    the new one.
    """

    def __init__(self) -> None:
        self.store: Any = None
        self._of_program: Any = None
        self._num_runs = 0

    def open(self, *, rank: int, size: int) -> None:
        """Open the store with the prefix of the next run."""
        if self._of_program is None:
            self._of_program, _, _ = next(rendezvous("env://", rank, size))
        self._num_runs += 1
        # torchrun --max-restarts starts the program again with the same store.
        self.store = PrefixStore(f"gristmill/attempt {num_restarts()}/run {self._num_runs}", self._of_program)


_rendezvous = _Rendezvous()


def join_others(strategy: Any) -> None:
    """Connect this process to the others of the run, which Lightning would do otherwise.

    Processes that are already connected stay so: Ray Train connects them before it calls the training function.
    """
    environment, launcher = getattr(strategy, "cluster_environment", None), getattr(strategy, "launcher", None)
    if environment is None or (launcher is not None and launcher.is_interactive_compatible):
        return
    num_local, num_nodes = int(strategy.num_processes), int(strategy.num_nodes)
    environment.set_global_rank(int(environment.node_rank()) * num_local + int(environment.local_rank()))
    rank, size, device = int(environment.global_rank()), num_local * num_nodes, strategy.root_device
    os.environ |= {"MASTER_ADDR": str(environment.main_address), "MASTER_PORT": str(environment.main_port)}
    _rendezvous.open(rank=rank, size=size)
    if torch.distributed.is_initialized():
        return
    torch.distributed.init_process_group(
        strategy.process_group_backend or torch.distributed.get_default_backend_for_device(device),
        store=_rendezvous.store,
        rank=rank,
        world_size=size,
        device_id=device if device.type != "cpu" else None,
    )


# In the other processes


def end_with_parent() -> None:
    """In a process started for another device, exit when the first process exits for any reason.

    Otherwise a process in a collective with exited peers would stay forever, because it only records a SIGTERM.
    """
    parent = os.environ.pop(PARENT, None)
    if parent is not None and os.name == "posix":
        threading.Thread(target=_wait_for_end_of, args=(int(parent),), daemon=True).start()


def _wait_for_end_of(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)
