"""Playing a scenario: an undisturbed run, then kills and reruns whose files must be the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from faults.kill_cluster import KillCluster
from faults.kill_inputs import Inputs
from faults.kill_runners import LIMIT_SECONDS, TAG, Runner, Running, kill_process, processes_of
from faults.kills import Scenario

ORPHAN_SECONDS = 60.0  # how long processes of a killed run may take to notice that it is gone


# Killing


def workers_of(tag: str, driver: int) -> list[int]:
    """Return the worker processes of a driver with the executor "processes"."""
    return [pid for pid, line in processes_of(tag).items() if pid != driver and b"gristmill.pretokenize.worker" in line]


def kill(victim: str, running: Running, place: Place, source: random.Random) -> bool:
    """Send SIGKILL; return whether there was a process to kill."""
    cluster = place.stage.cluster
    if victim == "node":
        assert cluster is not None
        return cluster.kill_node()
    if victim == "worker":
        workers = workers_of(place.tag, running.pid) if cluster is None else cluster.busy_workers()
        return bool(workers) and kill_process(source.choice(workers))
    if victim == "group":
        for pid in [pid for pid in processes_of(place.tag) if pid != running.pid]:
            kill_process(pid)
    return kill_process(running.pid)


# What a run leaves

# Values in the records of a run that differ from run to run. Everything else must be identical.
_TIMED = {"seconds", "tokens_per_second", "mfu", "mfu_matmul", "data_wait", "memory_bytes", "checksum"}


def digest(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, and of every empty folder. Recorded times do not count."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            found[name] = "special"
        elif path.is_dir():
            if not any(path.iterdir()):
                found[f"{name}/"] = "empty"
        else:
            found[name] = hashlib.sha256(_untimed(path)).hexdigest()
    return found


def _untimed(path: Path) -> bytes:
    """Return the content of a file, without times and without events, such as advice about a slow machine."""
    data = path.read_bytes()
    if path.name not in ("metrics.jsonl", "state.json"):
        return data
    try:
        records = list(map(json.loads, data.splitlines() if path.name == "metrics.jsonl" else [data]))
    except ValueError:  # of a run that was killed
        return data
    kept = [{name: record[name] for name in record if name not in _TIMED} for record in records]
    return json.dumps([record for record in kept if record.get("kind") != "event"]).encode()


def _is_visible(name: str) -> bool:
    return not any(part.startswith(".") for part in name.split("/"))


# Playing a scenario


@dataclass
class Result:
    """What became of the kills of one scenario."""

    scenario: str
    seed: int
    start: str
    """How commands start: "cold" or "warm"."""
    kills: dict[str, int] = field(default_factory=dict)
    """Number of kills of each kind of victim."""
    undisturbed_seconds: float = 0.0
    kill_seconds: list[float] = field(default_factory=list)
    """When each process was killed, in seconds after its start."""
    num_survived: int = 0
    """Runs that ended before the chosen time."""
    num_reruns: int = 0
    """Sequences of kills, each followed by runs until one was done."""
    num_equal: int = 0
    """Those that left exactly the files of an undisturbed run."""
    leftovers: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def num_kills(self) -> int:
        return sum(self.kills.values())

    @property
    def is_good(self) -> bool:
        return self.num_equal == self.num_reruns and not self.leftovers and not self.problems


class Stage:
    """A folder in which scenarios are played, with the inputs of all of them."""

    def __init__(self, folder: Path, runner: Runner, inputs: Inputs, cluster: KillCluster | None = None) -> None:
        self.folder, self.runner, self.cluster = folder, runner, cluster
        self.names = inputs.names | {"cluster": "" if cluster is None else cluster.address}
        self._number = 0

    def place(self, template: Path | None = None) -> Place:
        """Return a fresh place for a run, which begins as a copy of `template`."""
        self._number += 1
        place = Place(self, self.folder / f"{self._number}")
        place.root.mkdir(parents=True)
        if template is None:
            place.work.mkdir()
        else:
            shutil.copytree(template, place.work)
        place.temporary.mkdir()
        return place


class Place:
    """The working folder and the temporary folder of the runs of one sequence of kills."""

    def __init__(self, stage: Stage, root: Path) -> None:
        self.stage, self.root = stage, root
        self.work, self.temporary = root / "w", root / "t"  # short: Ray's sockets have paths of up to 107 bytes
        self.tag = str(root)

    def start(self, command: str) -> Running:
        arguments = [argument.format_map(self.stage.names) for argument in command.split()]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTEST_"))},
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TMPDIR": str(self.temporary),
            "OMP_NUM_THREADS": "1",
            TAG: self.tag,
        }
        return self.stage.runner.start(arguments, self.work, environment, self.root / "log")

    def finish(self, command: str) -> float:
        """Run a command to its end, and return how long it took."""
        began = time.monotonic()
        running = self.start(command)
        self.check(running, running.wait(LIMIT_SECONDS))
        return time.monotonic() - began

    def check(self, running: Running, code: int | None, refusal: str = "") -> None:
        """Raise `PlayError` unless a run has ended well, or was refused because an earlier one has done everything."""
        if code is None:
            kill("group", running, self, random.Random(0))
            running.wait(LIMIT_SECONDS)
            raise PlayError(f"hangs: not done after {LIMIT_SECONDS:.0f} s. {self.said()}")
        if code != 0 and not (refusal and refusal in self.said()):
            raise PlayError(f"exit code {code}: {self.said()}")

    def said(self) -> str:
        return (self.root / "log").read_text(errors="replace")[-1500:]

    def left(self) -> dict[str, str]:
        """Return the digests of all files in both folders, except those that Ray keeps of its sessions."""
        temporary = {
            f"$TMPDIR/{name}": value
            for name, value in digest(self.temporary).items()
            if name.split("/")[0] not in ("ray", "ray/")
        }
        return digest(self.work) | temporary

    def wait_for_orphans(self) -> list[str]:
        """Return the processes that still run although their driver has ended long ago, and kill them."""
        deadline = time.monotonic() + ORPHAN_SECONDS
        while (left := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            kill_process(pid)
        return [line.replace(b"\0", b" ").decode(errors="replace")[:200] for line in left.values()]

    def _processes(self) -> dict[int, bytes]:
        cluster = self.stage.cluster
        return processes_of(self.tag) | (dict.fromkeys(cluster.busy_workers(), b"ray::") if cluster is not None else {})

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


class PlayError(Exception):
    """A run failed or did not end."""


def play(
    one: Scenario,
    stage: Stage,
    *,
    num_kills: int,
    seed: int,
    num_undisturbed: int = 2,
    share_finished: float = 0.5,
    limit_seconds: float = math.inf,
) -> Result:
    """Kill a command `num_kills` times, run it again after that, and compare what it leaves.

    num_undisturbed: runs that must agree before the first kill.
    share_finished: share of the kills after which the next run may finish. The others are killed again.
    limit_seconds: end after this time, with fewer kills.
    """
    result = Result(one.name, seed, stage.runner.name)
    source = random.Random(f"{seed} {one.name}")
    began = time.monotonic()
    try:
        template = _template(one, stage)
        expected, before = _undisturbed(one, stage, template, result, num_undisturbed)
        durations = [result.undisturbed_seconds]
        while result.num_kills < num_kills and time.monotonic() - began < limit_seconds:
            _play_once(one, stage, template, source, result, durations, num_kills, expected, before, share_finished)
            if result.num_survived > 20 * (result.num_kills + 5):
                result.problems.append("most runs end before they can be killed")
                break
    except PlayError as error:
        result.problems.append(str(error))
    result.seconds = round(time.monotonic() - began, 1)
    return result


def _template(one: Scenario, stage: Stage) -> Path | None:
    if not one.before:
        return None
    place = stage.place()
    place.finish(one.before)
    return place.work


def _undisturbed(
    one: Scenario, stage: Stage, template: Path | None, result: Result, num_runs: int
) -> tuple[dict[str, str], dict[str, str]]:
    before = {} if template is None else digest(template)
    seen = []
    seconds = []
    for _ in range(num_runs):
        place = stage.place(template)
        seconds.append(place.finish(one.arguments))
        seen.append(place.left())
        if orphans := place.wait_for_orphans():
            raise PlayError(f"an undisturbed run leaves processes: {orphans}")
        place.remove()
    if seen[0] != seen[-1]:
        raise PlayError(f"two undisturbed runs differ: {different(seen[0], seen[-1])}")
    if hidden := [name for name in seen[0] if not _is_visible(name) or name.startswith("$TMPDIR")]:
        raise PlayError(f"an undisturbed run leaves {hidden}")
    result.undisturbed_seconds = min(seconds)
    return seen[0], before


def _play_once(
    one: Scenario,
    stage: Stage,
    template: Path | None,
    source: random.Random,
    result: Result,
    durations: list[float],
    num_kills: int,
    expected: dict[str, str],
    before: dict[str, str],
    share_finished: float,
) -> None:
    """Kill a run in a fresh place once or several times, and let it finish."""
    place = stage.place(template)
    is_done = False
    while not is_done and result.num_kills < num_kills:
        is_done = _run_and_kill(one, place, source, result, durations, num_kills)
        if not is_done:
            _check_visible(one, place, expected, before, result)
            if source.random() < share_finished:
                break
    if not is_done:
        began = time.monotonic()
        running = place.start(one.arguments)
        place.check(running, running.wait(LIMIT_SECONDS), one.refusal)
        durations.append(time.monotonic() - began)
    if orphans := place.wait_for_orphans():
        result.problems.append(f"processes remain: {orphans}")
    left = place.left()
    result.num_reruns += 1
    result.num_equal += left == expected
    if left != expected:
        result.leftovers += sorted(left.keys() - expected.keys())
        result.problems += [f"differs: {name}" for name in different(left, expected) if name in expected]
    place.remove()


def _run_and_kill(
    one: Scenario, place: Place, source: random.Random, result: Result, durations: list[float], num_kills: int
) -> bool:
    """Start a run and kill it, or workers and nodes of it, at random times; return whether it was done nevertheless."""
    # The machine may be busier than it was at first, so the length of a run is the median of the last ones. One kill of
    # five falls into the first third, where the run plans its work.
    typical = statistics.median(durations[-5:])
    at = source.uniform(0, typical / 3) if source.random() < 0.2 else source.uniform(0, 1.05 * typical)
    began = time.monotonic()
    running = place.start(one.arguments)
    code = running.wait(at)
    num_here = 0
    # A task that loses its worker four times is an error, so a run loses at most three workers or nodes.
    while code is None and num_here < 3 and result.num_kills < num_kills:
        victim = source.choice(one.victims)
        # Workers exist only during a part of the run: the kill comes at the first moment when there is one.
        while code is None and not kill(victim, running, place, source):
            code = running.wait(0.02)
        if code is None:
            num_here += 1
            result.kills[victim] = result.kills.get(victim, 0) + 1
            result.kill_seconds.append(round(time.monotonic() - began, 3))
        if victim in ("group", "driver"):
            break
        if code is None:
            code = running.wait(source.uniform(0, typical / 3))
    result.num_survived += num_here == 0  # it ended before the chosen time
    if code is None:
        code = running.wait(LIMIT_SECONDS)
    if code == -signal.SIGKILL and num_here:
        return False
    place.check(running, code, one.refusal)
    return True


def _check_visible(
    one: Scenario, place: Place, expected: dict[str, str], before: dict[str, str], result: Result
) -> None:
    """Check that each visible file of a killed run is complete: the old one or the new one."""
    for name, value in digest(place.work).items():
        if not _is_visible(name) or name.rsplit("/")[-1] in one.growing or "*" in one.growing:
            continue
        if name in expected and value not in (expected[name], before.get(name)):
            result.problems.append(f"{name} was visible and not complete")


def different(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Return the names of the files that differ or that only one side has."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder with a short path, removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="gk", dir="/tmp") as folder:
        yield Path(folder)
