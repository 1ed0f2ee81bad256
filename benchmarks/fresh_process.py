"""Measure one call in a separate process: `measure("rivals.gigabpe", {...})`.

The named module is imported first, so the time excludes imports. Memory is the high-water mark of the whole process.
Output of the measured code goes to stderr; the process prints one line of JSON.
"""

import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class ChildFailed(RuntimeError):
    """The measured process failed; the message is the end of its stderr."""


@dataclass(frozen=True)
class Sample:
    """The time and memory of one run."""

    seconds: float
    cpu_seconds: float
    foreign_cpu_seconds: float | None  # CPU time of other processes (or the hypervisor) during the run; None: unknown
    peak_rss_bytes: int
    start_rss_bytes: int  # interpreter and imports
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def cpu_per_wall(self) -> float:
        """The number of CPUs that the run kept busy."""
        return self.cpu_seconds / self.seconds

    @property
    def quiet(self) -> bool:
        """Whether other processes took less than a tenth of one CPU (or one clock tick or two, in a very short run)."""
        return self.foreign_cpu_seconds is None or self.foreign_cpu_seconds < max(0.1 * self.seconds, 0.025)


def measure(module: str, job: Mapping[str, object], *, num_threads: int, timeout_seconds: float = 3600) -> Sample:
    """Run `module.run(module.JOB(**job))` in a fresh process with `num_threads` threads and measure it."""
    environment = os.environ | {
        "RAYON_NUM_THREADS": str(num_threads),
        "TOKENIZERS_PARALLELISM": "true" if num_threads > 1 else "false",
        "PYTHONHASHSEED": "0",
    }
    command = [sys.executable, str(Path(__file__)), module, json.dumps(job)]
    child = subprocess.run(command, env=environment, capture_output=True, timeout=timeout_seconds, check=False)
    if child.returncode != 0:
        raise ChildFailed(f"{module}: exit status {child.returncode}: {child.stderr.decode(errors='replace')[-2000:]}")
    return Sample(**json.loads(child.stdout))


def _main(module_name: str, job_json: str) -> None:
    own_stdout = os.dup(1)
    os.dup2(2, 1)
    module = importlib.import_module(module_name)
    job = module.JOB(**json.loads(job_json))

    start_rss, foreign = _memory_bytes("VmRSS"), ForeignCpu()
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = module.run(job)
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    sample = {
        "seconds": wall,
        "cpu_seconds": cpu,
        "foreign_cpu_seconds": foreign.since_start(own=cpu),
        "peak_rss_bytes": _memory_bytes("VmHWM"),
        "start_rss_bytes": start_rss,
        "facts": module.describe(result),
    }
    os.write(own_stdout, json.dumps(sample).encode() + b"\n")


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended, to the microsecond."""
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in own)


def _memory_bytes(name: str) -> int:
    # Prefer /proc to ru_maxrss: a child inherits the maximum of the process that started it.
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class ForeignCpu:
    """CPU time of the whole machine, including stolen time, without our own."""

    def __init__(self) -> None:
        self._start = self._busy_seconds()

    def since_start(self, *, own: float) -> float | None:
        """Return the CPU time of other processes since this object was created, less our `own`; None if unknown."""
        now = self._busy_seconds()
        return None if now is None or self._start is None else max(0.0, now - self._start - own)

    @staticmethod
    def _busy_seconds() -> float | None:
        stat = Path("/proc/stat")
        if not stat.exists():
            return None
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.read_text().split("\n")[0].split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    _main(*sys.argv[1:])
