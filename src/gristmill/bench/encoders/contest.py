"""Run the systems in separate processes, for the encoding benchmarks."""

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import cast

from gristmill.bench.encoders import Encoder
from gristmill.bench.encoders.passes import EncodeJob
from gristmill.bench.fresh_process import ChildFailed, Sample, measure

OURS = "gristmill"
REFERENCE = "tiktoken"
LEAST_CPU_PER_WALL = 1.3


@dataclass
class Entry:
    """One API of one system with its runs (disturbed ones separately), or the reason why there are no runs."""

    system: str
    api: str
    encoder: Encoder
    runs: list[Sample] = field(default_factory=list)
    repeated: list[Sample] = field(default_factory=list)
    problem: str | None = None

    @property
    def digests(self) -> set[str]:
        """The digests of its ids; more than one is an error."""
        return {str(run.facts["digest"]) for run in self.runs + self.repeated}

    def seconds(self, passes: str) -> list[float]:
        """The cold pass of each run, or the median of its warm passes."""
        return [median(one["seconds"] for one in _passes(run, passes)) for run in self.runs]

    def cpu_per_wall(self, passes: str) -> float:
        """The median over the runs."""
        return median(cpu_per_wall(run, passes) for run in self.runs)


def _passes(run: Sample, passes: str) -> list[dict[str, float]]:
    found = run.facts[passes]
    return found if isinstance(found, list) else [found]


def cpu_per_wall(run: Sample, passes: str) -> float:
    """Return the number of CPUs that the cold pass, or all warm passes together, kept busy."""
    found = _passes(run, passes)
    return sum(one["cpu_seconds"] for one in found) / sum(one["seconds"] for one in found)


def find_entries(names: Sequence[str], num_threads: int) -> tuple[list[Entry], list[str]]:
    """Return an entry for each requested API that can use the threads, and the missing systems."""
    entries, missing = [], []
    for name in names:
        system, _, wanted = name.partition(":")
        try:
            encoder = cast(Encoder, importlib.import_module(f"encoders.{system}"))
        except ImportError as error:
            missing.append(system)
            print(f"skipped: {system} cannot be imported ({error})", file=sys.stderr)
            continue
        if wanted and wanted not in encoder.APIS:
            raise SystemExit(f"{system} has no API {wanted!r} here. Known: {', '.join(encoder.APIS)}.")
        apis = [
            api
            for api, how in encoder.APIS.items()
            if api == wanted or (not wanted and not (how.one_thread and num_threads > 1))
        ]
        entries += [Entry(system, api, encoder) for api in apis]
    if not entries:
        raise SystemExit("nothing to measure: none of the systems is installed.")
    return entries, missing


def run_once(entry: Entry, job: EncodeJob, *, extra: int, timeout: float) -> None:
    """Add one run to the entry, repeated if it was disturbed, or the problem if it failed."""
    while True:
        sample = attempt(entry, job, timeout=timeout)
        if sample is None:
            return
        if not _disturbed(entry, sample, job.num_threads) or len(entry.repeated) >= extra:
            entry.runs.append(sample)
            return
        entry.repeated.append(sample)


def attempt(entry: Entry, job: EncodeJob, *, timeout: float) -> Sample | None:
    """Return one run, or None with the problem written into the entry."""
    own = replace(job, system=entry.system, api=entry.api)
    try:
        sample = measure("encoders.passes", asdict(own), num_threads=job.num_threads, timeout_seconds=timeout)
    except subprocess.TimeoutExpired:
        entry.problem = f"time-out after {timeout:.0f} s"
    except ChildFailed as failure:
        entry.problem = "crash: " + str(failure).partition(": ")[2].splitlines()[0][:150]
    else:
        entry.problem = _error_in(sample)
    if entry.problem is not None:
        print(f"{entry.system:11} {entry.api:28} {entry.problem}", file=sys.stderr)
        return None
    cold, warm = sample.facts["cold"]["seconds"], [one["seconds"] for one in sample.facts["warm"]]
    print(
        f"{entry.system:11} {entry.api:28} cold {cold:8.3f} s  warm {median(warm) if warm else 0:8.3f} s"
        f"  CPU/wall {cpu_per_wall(sample, 'cold'):.2f}{'' if sample.quiet else '  (disturbed)'}",
        file=sys.stderr,
    )
    return sample


def _error_in(sample: Sample) -> str | None:
    if "refused" in sample.facts:
        return str(sample.facts["refused"])
    return f"error: {sample.facts['error']}" if "error" in sample.facts else None


def _disturbed(entry: Entry, sample: Sample, num_threads: int) -> bool:
    """Return whether a run should be repeated. Other systems may leave CPUs idle."""
    passes = ("cold", "warm") if sample.facts["warm"] else ("cold",)
    least = min(cpu_per_wall(sample, name) for name in passes)
    starved = entry.system == OURS and num_threads > 1 and least <= LEAST_CPU_PER_WALL
    return starved or not sample.quiet


def tiktoken_digest(entries: Sequence[Entry], job: EncodeJob) -> str | None:
    """Return the digest of tiktoken's ids: from its runs, or from an extra run; None if it fails."""
    own = [entry for entry in entries if entry.system == REFERENCE]
    if not own:
        own, _ = find_entries([REFERENCE], 1) if _installed(REFERENCE) else ([], [])
        own = own[:1]
        for entry in own:
            sample = attempt(entry, replace(job, num_threads=1, num_warm=0, ids_path=None), timeout=900)
            entry.runs += [sample] if sample is not None else []
    digests = {digest for entry in own for digest in entry.digests}
    return digests.pop() if len(digests) == 1 else None


def _installed(distribution: str) -> bool:
    return importlib.util.find_spec(distribution) is not None
