"""Fuzzing: mutated files of one kind, read in a forked process, with every crash and hang attributed to its file.

The n-th file of a kind depends only on the seed, the name of the kind and n. The child records n in shared memory
before it reads the file. When it dies or hangs, the parent keeps the folder and starts another child after n.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import signal
import struct
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from faults.mutated.guard import Guard
from faults.mutated.kind import Inputs
from faults.mutated.kinds import find_kind

HANG_SECONDS = 10.0  # CPU time of one file
STUCK_SECONDS = 120.0  # wall time of one file: blocked, without using a CPU
MAX_FINDINGS = 50  # of one kind, then the kind ends
_STATE = struct.Struct("<qd")  # number of the file, and the CPU time of the process when it began


@dataclass
class Report:
    """What became of the files of a kind."""

    kind: str
    files: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    slowest_seconds: float = 0.0

    def line(self) -> str:
        """Return the counts as one line of JSON."""
        return json.dumps({**vars(self), "outcomes": dict(self.outcomes.most_common())})


def random_of(seed: int, kind: str, number: int) -> Random:
    """Return the source of everything random about a file."""
    return Random(f"{seed} {kind} {number}")


def fuzz(kind: str, numbers: Iterable[int], *, seed: int, root: Path, kept: Path | None = None) -> Report:
    """Read the mutated files with these numbers. `root` is a temporary folder; `kept` gets the folders of findings."""
    report = Report(kind)
    started = time.monotonic()
    rest = list(numbers)
    while rest and len(report.findings) < MAX_FINDINGS:
        done = _run_child(kind, rest, seed, root, kept, report)
        rest = rest[done:]
    report.seconds = time.monotonic() - started
    return report


def _run_child(kind: str, numbers: list[int], seed: int, root: Path, kept: Path | None, report: Report) -> int:
    """Return how many files a child has read, including one that killed it."""
    sandbox = root / kind
    shutil.rmtree(sandbox, ignore_errors=True)
    sandbox.mkdir(parents=True)
    shared = mmap.mmap(-1, _STATE.size)
    _STATE.pack_into(shared, 0, -1, 0.0)
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(receiver)
            _work(kind, numbers, seed, sandbox, kept, shared, sender)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(sender)
    try:
        status, killed = _watch(child, receiver, shared, report)
    finally:
        os.close(receiver)
    index = int(_STATE.unpack_from(shared, 0)[0])
    shared.close()
    if status == 0 and killed is None:
        return len(numbers)
    if index < 0:
        raise RuntimeError(f"the process for {kind} failed before its first file (status {status})")
    number = numbers[index]
    why = killed or f"the process died: status {status}" + (f", signal {status & 127}" if status & 127 else "")
    report.files += 1
    report.outcomes["hang" if killed else "crash"] += 1
    report.findings.append({"number": number, "seed": seed, "finding": why})
    keep(kept, sandbox / "now", kind, number, why)
    return index + 1


def _watch(child: int, receiver: int, shared: mmap.mmap, report: Report) -> tuple[int, str | None]:
    """Collect the reports of the child until it ends; kill it if a file takes too long."""
    os.set_blocking(receiver, False)
    buffer = b""
    killed = None
    last, since = -1, time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        with contextlib.suppress(BlockingIOError):
            while block := os.read(receiver, 1 << 16):
                buffer += block
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            _add(report, json.loads(line))
        if ended:
            return status, killed
        index, began = _STATE.unpack_from(shared, 0)
        if index != last:
            last, since = index, time.monotonic()
        elif index >= 0 and killed is None:
            used = _cpu_seconds(child) - began
            if used > HANG_SECONDS or time.monotonic() - since > STUCK_SECONDS:
                killed = f"hang: {used:.0f} s of CPU time, {time.monotonic() - since:.0f} s"
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _add(report: Report, part: dict[str, Any]) -> None:
    report.files += part["files"]
    report.outcomes.update(part["outcomes"])
    report.findings.extend(part["findings"])
    report.slowest_seconds = max(report.slowest_seconds, part["slowest_seconds"])


def _work(
    name: str, numbers: list[int], seed: int, sandbox: Path, kept: Path | None, shared: mmap.mmap, sender: int
) -> None:
    """Read files, in the child. Reports are sent before a finding could be lost with the process."""
    kind = find_kind(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = Inputs(kind, sandbox)
        _skip_flushes()
        for folder in inputs.valid_folders():  # valid files are read, which also imports what reading needs
            for reader in kind.readers:
                inputs.show(folder)
                reader(inputs.now)
    os.chdir(sandbox)
    outside = _names(sandbox)
    guard = Guard(inputs.now, max_growth=kind.max_growth, executes=kind.executes)
    outcomes: Counter[str] = Counter()
    findings: list[dict[str, Any]] = []
    slowest, num_files, num_findings, sent = 0.0, 0, 0, time.monotonic()
    for index, number in enumerate(numbers):
        reader = inputs.prepare(random_of(seed, name, number))
        began = time.process_time()
        _STATE.pack_into(shared, 0, index, began)
        outcome, finding = guard.call(reader, inputs.now)
        num_files += 1
        outcomes[outcome] += 1
        slowest = max(slowest, time.process_time() - began)
        if finding is None and num_files % 256 == 0 and (there := _names(sandbox)) != outside:
            finding = f"one of the last 256 files changed the sandbox: {sorted(there ^ outside)}"
            outside = there
        if finding is not None:
            num_findings += 1
            read = getattr(reader, "__name__", str(reader))
            findings.append({"number": number, "seed": seed, "reader": read, "finding": finding})
            keep(kept, inputs.now, name, number, f"{read}: {finding}")
        if findings or time.monotonic() - sent > 0.5:
            _send(sender, num_files, outcomes, findings, slowest)
            outcomes, findings, slowest, num_files, sent = Counter(), [], 0.0, 0, time.monotonic()
        if num_findings >= MAX_FINDINGS:
            break
    _send(sender, num_files, outcomes, findings, slowest)


def _names(sandbox: Path) -> set[str]:
    """Return what there is outside of the folder that readers may change."""
    return {path.name for folder in (sandbox, sandbox.parent) for path in folder.iterdir()}


def _send(sender: int, files: int, outcomes: Counter[str], findings: list[dict[str, Any]], slowest: float) -> None:
    if files:
        part = {"files": files, "outcomes": outcomes, "findings": findings, "slowest_seconds": slowest}
        data = json.dumps(part).encode() + b"\n"
        while data:
            data = data[os.write(sender, data) :]


def _skip_flushes() -> None:
    """Do not flush: the folders are temporary, and a flush takes longer than everything else."""
    setattr(os, "fsync", lambda descriptor: None)  # noqa: B010 - an assignment would be an error of types
    setattr(os, "fdatasync", lambda descriptor: None)  # noqa: B010


def keep(kept: Path | None, folder: Path, kind: str, number: int, why: str) -> None:
    """Keep a copy of the folder of a finding."""
    if kept is None:
        return
    target = kept / f"{kind}-{number}"
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, target, symlinks=True)
    (target / ".finding.txt").write_text(why + "\n", encoding="utf-8")
