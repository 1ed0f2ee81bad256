"""The tasks of bench_executors.py, each in a fresh process: count or encode a file with one executor.

Before the clock starts, a Ray cluster and all its workers are started and have run a tiny job. The driver alone is
measured with workers that return immediately.
"""

import contextlib
import hashlib
import importlib
import os
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import gristmill as gm
from gristmill.count.distributed import MAX_PARTITIONS
from gristmill.count.tasks import pack_runs
from gristmill.executors.calls import Call, Outcome
from gristmill.executors.done import Done
from gristmill.executors.driver import run_calls
from gristmill.executors.executor import Finished, Workers
from gristmill.executors.watch import Watch
from gristmill.executors.work_folder import FileEntry

SAMPLE_SECONDS = 0.1


@dataclass
class Job:
    """One measured run. `task` is "count", "encode" or "driver"."""

    task: str
    executor: str = "local"
    num_workers: int = 2
    path: str = ""
    tokenizer: str = ""
    folder: str = ""
    num_parts: int = 0
    options: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        if self.executor == "local":
            self.options = {"num_threads": self.num_workers}
        elif self.executor == "processes":
            self.options = {"executor": gm.Processes(num_workers=self.num_workers)}
        else:
            self.options = {"executor": gm.Ray(num_workers=self.num_workers)}
            _start_ray(self.num_workers)


JOB = Job


def _start_ray(num_workers: int) -> None:
    import ray

    ray.init("local", num_cpus=num_workers, include_dashboard=False, log_to_driver=False, configure_logging=False)

    @ray.remote
    def start() -> None:
        importlib.import_module("gristmill.shards.tasks")
        time.sleep(1)  # so that every worker gets a task

    ray.get([start.remote() for _ in range(num_workers)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warm-up.txt"
        path.write_text("the cat sat on the mat\n" * 20_000)
        gm.count_words(path, progress=None, executor=gm.Ray(num_workers=num_workers, part_bytes=70_000))


def run(job: Job) -> dict[str, Any]:
    """Run the job, and measure the processes that it starts."""
    if job.task == "driver":
        return {"num_parts": _drive(job.num_parts)}
    with _Workers() as workers:
        digest = _count(job) if job.task == "count" else _encode(job)
    return {"digest": digest, "worker_peak_bytes": workers.peak_bytes, "worker_cpu_seconds": workers.cpu_seconds}


def describe(result: dict[str, Any]) -> dict[str, Any]:
    """Return the measurements of a run."""
    return result


def _count(job: Job) -> str:
    words = gm.count_words(job.path, progress=None, **job.options)
    most = hashlib.sha256(repr(words.most_common(1000)).encode()).hexdigest()
    return f"{len(words)} words, {words.num_pieces} pieces, {most}"


def _encode(job: Job) -> str:
    out = Path(job.folder) / "shards"
    gm.encode_corpus(job.path, gm.Tokenizer.load(job.tokenizer), out=out, progress=None, overwrite=True, **job.options)
    # The manifest has the checksum of every shard.
    return hashlib.sha256((out / "manifest.json").read_bytes()).hexdigest()


class _Workers:
    """Memory and CPU time of the descendants of this process that are still alive.

    The CPU time of ended processes is part of their parent's.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.cpu_seconds = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "_Workers":
        self._before = _cpu_seconds()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        after = _cpu_seconds()
        self.cpu_seconds = sum(seconds - self._before.get(pid, 0.0) for pid, seconds in after.items())
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            for pid in _descendants():
                self.peak_bytes = max(self.peak_bytes, _peak_bytes(pid))


def _descendants() -> set[int]:
    """Return all descendants of this process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields after the name: state, parent, …; empty if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _cpu_seconds() -> dict[int, float]:
    ticks = os.sysconf("SC_CLK_TCK")
    stats = {pid: _stat(pid) for pid in _descendants()}
    return {pid: (int(fields[11]) + int(fields[12])) / ticks for pid, fields in stats.items() if fields}


def _peak_bytes(pid: int) -> int:
    """Return the high-water mark of a worker; 0 for other Ray processes."""
    with contextlib.suppress(OSError, StopIteration):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if command.startswith(b"ray::") or b"gristmill" in command:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return 0


class _AtOnce(Workers):
    """Workers that finish every call immediately."""

    num_workers = 1_600

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._num_taken = 0

    def submit(self, call: Call) -> int:
        self._calls.append(call)
        return self._num_taken + len(self._calls) - 1

    def wait(self, seconds: float) -> list[Finished]:
        first, self._num_taken = self._num_taken, self._num_taken + len(self._calls)
        calls, self._calls = self._calls, []
        return [Finished(first + index, _outcome(call)) for index, call in enumerate(calls)]

    def cancel(self, ticket: int) -> None:
        pass


def _outcome(call: Call) -> Outcome:
    """A result as large as that of counting a part with the maximum number of partitions."""
    runs = np.full((MAX_PARTITIONS, 4), 2**40 + call.number, np.uint64)
    result = {"runs": pack_runs(runs), "source_bytes": call.num_bytes, "num_pieces": 12_345_678, "skipped": {}}
    done = Done((FileEntry(f"{call.name}.runs", 63_000_000, "0" * 16),), result)
    return Outcome(call, done, f"node-{call.number % 100}", str(call.number % 16), 1.0, False, 200_000_000)


def _drive(num_parts: int) -> int:
    calls = [
        Call("count", "gristmill.count.tasks:count_part", "/shared/work", i, 256_000_000) for i in range(num_parts)
    ]
    return len(run_calls(_AtOnce(), calls, Watch(None)))
