"""Measure one call in a separate process: `measure("gristmill.bench.rivals.gigabpe", {...}, num_threads=2)`.

The process imports the named module first, so the time excludes imports. Memory is the high-water mark of the whole
process. Output of the measured code goes to stderr; the process writes one line of JSON to its standard output. The
process is the leader of its own session: after a timeout or Ctrl-C, all processes of the session are ended.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

__all__ = ["ChildFailed", "ForeignCpu", "NotInstalled", "Sample", "TimedOut", "cpu_seconds", "measure", "one_line"]

MAX_ERROR_BYTES = 4000
MAX_RESULT_BYTES = 1 << 24
MAX_REASON = 160
# Exit status of a process whose module needs a package that is not installed; the last line of stderr names it.
MISSING_STATUS = 97


class ChildFailed(RuntimeError):
    """The measured process gave no result; the message is the reason, in one line.

    ChildFailed
    ├── NotInstalled   the module, or a package that it imports, is not installed
    └── TimedOut       the process ran longer than its time limit
    """


class NotInstalled(ChildFailed):
    """The measured module needs a package that is not installed."""


class TimedOut(ChildFailed):
    """The measured process ran longer than its time limit."""


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
    """Run `module.run(module.JOB(**job))` in a fresh process and return its time and memory.

    The process imports from the same folders as this one. `module.describe(result)` becomes the `facts` of the
    sample; it is not timed.

    Args:
        module: Name of a module with `JOB`, `run` and `describe`.
        job: Arguments of `JOB`, which must be valid JSON.
        num_threads: Value of the environment variables that set the number of threads of other libraries.
        timeout_seconds: Time limit of the process, including imports.

    Raises:
        NotInstalled: The module, or a package that it imports, is not installed.
        TimedOut: The process ran longer than `timeout_seconds`.
        ChildFailed: The process crashed, was killed or gave no result.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "RAYON_NUM_THREADS": str(num_threads),
        "TOKENIZERS_PARALLELISM": "true" if num_threads > 1 else "false",
        "PYTHONHASHSEED": "0",
    }
    command = [sys.executable, "-P", "-m", "gristmill.bench.fresh_process", module, json.dumps(job)]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        status = _run(command, environment, output, errors, timeout_seconds)
        if status == 0:
            return _sample(output)
        lines = _tail(errors).strip().splitlines()
    last = lines[-1] if lines else ""
    if status == MISSING_STATUS:
        raise NotInstalled(one_line(last))
    how = f"killed by {_signal_name(-status)}" if status < 0 else f"exit status {status}"
    raise ChildFailed(one_line(f"crashed ({how})" + (f": {last}" if last else "")))


def _run(
    command: list[str], environment: dict[str, str], output: IO[bytes], errors: IO[bytes], timeout_seconds: float
) -> int:
    """Return the exit status. No process of the session is left, whatever happens."""
    child = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
    )
    try:
        return child.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        raise TimedOut(f"timed out after {timeout_seconds:,.0f} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _sample(output: IO[bytes]) -> Sample:
    output.seek(0)
    try:
        return Sample(**json.loads(output.read(MAX_RESULT_BYTES)))
    except (TypeError, ValueError):
        raise ChildFailed("crashed: the process ended without a result") from None


def _tail(errors: IO[bytes]) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - MAX_ERROR_BYTES))
    return errors.read().decode(errors="replace")


def _signal_name(number: int) -> str:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"{name}, possibly because memory ran out" if name == "SIGKILL" else name


def one_line(text: str) -> str:
    """Return `text` as one short line that fits a cell of a Markdown table.

    >>> one_line("a |   b")
    'a / b'
    """
    joined = " ".join(text.split()).replace("|", "/")
    return joined if len(joined) <= MAX_REASON else joined[: MAX_REASON - 1] + "…"


def _main(module_name: str, job_json: str) -> None:
    own_stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        print(f"not installed: {error.name}", file=sys.stderr, flush=True)
        sys.exit(MISSING_STATUS)
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
    with os.fdopen(own_stdout, "wb") as stdout:
        stdout.write(json.dumps(sample).encode() + b"\n")


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended, to the microsecond."""
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in own)


def _memory_bytes(name: str) -> int:
    # Prefer /proc to ru_maxrss: a child inherits the maximum of the process that started it.
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8", errors="replace").splitlines():
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
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(
            int, stat.read_text(encoding="ascii").split("\n")[0].split()[1:9]
        )
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    _main(*sys.argv[1:])
