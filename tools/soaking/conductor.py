"""Conductor: starts the hosts, lets them pause, samples their processes and collects what they report."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soaking.inputs import make_inputs
from soaking.kind import kind_class
from soaking.sampler import MARK, Look, look_at, processes_of, settle, temporary_files

PREPARE_SECONDS = 600
SAMPLE_SECONDS = 1.0
LEAVE_SECONDS = 10.0  # for processes whose parent was killed
# Without these settings, glibc keeps an unpredictable part of the memory that a process has freed: each thread keeps up
# to seven blocks of every size below 1 KiB, the thresholds rise to the size of the largest freed block, up to 64 MiB,
# and threads use up to eight heaps per core.
MALLOC = {
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_ARENA_MAX": "2",
}
TOOLS = Path(__file__).resolve().parent.parent


@dataclass
class Error:
    """What went wrong, and in which kind or process."""

    where: str
    text: str


@dataclass
class Outcome:
    """Everything that a run has found."""

    seconds: float = 0.0
    operations: dict[str, Counter[str]] = field(default_factory=dict)
    errors: list[Error] = field(default_factory=list)
    looks: dict[str, list[Look]] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)
    """Names of the processes whose threads are all known. Others may have a pool that grows and shrinks."""
    threads_left: list[str] = field(default_factory=list)
    processes_left: list[str] = field(default_factory=list)
    files_left: list[str] = field(default_factory=list)


class HostProcess:
    """A host as its conductor sees it."""

    def __init__(self, name: str, kinds: list[str], root: Path, seed: int, environment: dict[str, str]) -> None:
        self.name, self.kinds = name, kinds
        self.log = root / "logs" / f"{name}.log"
        command = [sys.executable, "-m", "soaking.host", str(root), str(seed), *kinds]
        with self.log.open("wb") as log:
            # A session of its own, so that Ctrl-C reaches only the conductor, which then stops all of them.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.watched = {name: self.process.pid}
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._messages.put(json.loads(line))
        self._messages.put(None)

    def tell(self, command: str) -> None:
        """Send a command. A host that has ended is noticed by `expect`."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(f"{command}\n".encode())
            self.process.stdin.flush()

    def expect(self, what: str, outcome: Outcome, *, seconds: float) -> dict[str, Any]:
        """Return the next message of this sort, and record all errors before it. Raises if the host hangs or ends."""
        end = time.monotonic() + seconds
        while True:
            try:
                message = self._messages.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                self.process.send_signal(signal.SIGUSR1)
                time.sleep(1)
                raise HostError(f"{self.name} was not {what} within {seconds} s.\n{self._end_of_log()}") from None
            if message is None:
                code = self.process.wait()
                raise HostError(f"{self.name} ended with exit code {code}.\n{self._end_of_log()}")
            if "error" in message:
                outcome.errors.append(Error(message["kind"], message["error"]))
            for kind, counts in message.get("counts", {}).items():
                outcome.operations[kind] = Counter(counts)
            if what in message:
                return message

    def _end_of_log(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-8_000:]


class HostError(Exception):
    """A host that ended or does not answer."""


def soak(kinds: Iterable[str], *, root: Path, seconds: float, num_pauses: int, patience: float, seed: int) -> Outcome:
    """Run the kinds for some seconds in a folder that does not exist yet, and return what was found.

    patience: Seconds after which an operation counts as a hang.
    """
    kinds = list(kinds)
    outcome = Outcome(operations={kind: Counter() for kind in kinds})
    for name in ("kinds", "logs", "tmp"):
        (root / name).mkdir(parents=True)
    if any(kind_class(kind).needs_inputs for kind in kinds):
        make_inputs(root / "inputs", seed)
    run = f"{os.getpid()}.{time.time_ns()}"
    path = os.pathsep.join([str(TOOLS), *filter(None, sys.path)])
    environment = {**os.environ, MARK: run, "TMPDIR": str(root / "tmp"), "PYTHONPATH": path}
    environment |= MALLOC
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(root / "inductor")  # torch keeps this cache, by default in $TMPDIR
    hosts: list[HostProcess] = []
    try:
        for name, members in grouped(kinds).items():
            hosts.append(HostProcess(name, members, root, seed, environment))
            hosts[-1].watched |= hosts[-1].expect("ready", outcome, seconds=PREPARE_SECONDS)["watched"]
        outcome.hosts = [host.name for host in hosts]
        began = time.monotonic()
        with ThreadPoolExecutor(len(hosts)) as pool:
            conducted = [
                pool.submit(conduct, host, outcome, seconds=seconds, num_pauses=num_pauses, patience=patience)
                for host in hosts
            ]
            try:
                wait(conducted)
            except BaseException:  # Ctrl-C: the threads end with their hosts
                for host in hosts:
                    host.process.kill()
                raise
        outcome.seconds = time.monotonic() - began
        for each in conducted:
            if (error := each.exception()) is not None:
                outcome.errors.append(Error("conductor", str(error)))
    except HostError as error:
        outcome.errors.append(Error("conductor", str(error)))
    finally:
        outcome.processes_left = end_processes(run, patient=not outcome.errors)
        for host in hosts:
            host.process.wait()
    outcome.files_left = temporary_files(root, root / "tmp")
    return outcome


def grouped(kinds: Iterable[str]) -> dict[str, list[str]]:
    """Return the kinds of each process, in the order in which they are prepared."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind_class(kind).process, []).append(kind)
    return groups


def conduct(host: HostProcess, outcome: Outcome, *, seconds: float, num_pauses: int, patience: float) -> None:
    """Let a host work, and look at its processes every second and in pauses. Raises HostError.

    The other hosts work during the pauses of this one, so that the load never ends.
    """
    looks: dict[str, list[Look]] = {name: [] for name in host.watched}
    outcome.looks |= looks
    began = time.monotonic()

    def look(*, is_quiet: bool) -> None:
        for name, pid in host.watched.items():
            with contextlib.suppress(OSError):  # the process has ended, which `expect` reports
                looks[name].append(look_at(pid, time.monotonic() - began, is_quiet=is_quiet))

    while (elapsed := time.monotonic() - began) < seconds:
        host.tell("go")
        end = time.monotonic() + min(seconds / num_pauses, seconds - elapsed)
        while (left := end - time.monotonic()) > 0 and host.process.poll() is None:
            time.sleep(min(left, SAMPLE_SECONDS))
            look(is_quiet=False)
        host.tell("pause")
        host.expect("paused", outcome, seconds=patience)
        settle(host.watched.values())
        look(is_quiet=True)
    host.tell("stop")
    outcome.threads_left += [
        f"{host.name}: {name}" for name in host.expect("stopped", outcome, seconds=patience)["threads"]
    ]
    if code := host.process.wait(patience):
        raise HostError(f"{host.name} ended with exit code {code} after its work.")


def end_processes(run: str, *, patient: bool) -> list[str]:
    """Return the processes of the run that have not ended by themselves, after killing them."""
    end = time.monotonic() + (LEAVE_SECONDS if patient else 0)
    while (left := processes_of(run)) and time.monotonic() < end:
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return list(left.values())
