"""Run the systems in separate processes, and compare their ids before using their time."""

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, cast

from gristmill.bench.fresh_process import ChildFailed, Sample, measure
from gristmill.bench.pipelines import Pipeline
from gristmill.bench.pipelines.one_run import PipelineJob
from gristmill.bench.pipelines.reference import Reference, difference
from gristmill.bench.pipelines.tree_memory import TreeMemory

OURS = "gristmill"
LEAST_CPU_PER_WALL = 1.3


class NoFigure(Exception):
    """The run gave no valid time; the message gives the reason."""


@dataclass(frozen=True)
class Run:
    """The measurements of one run, from the path of the text to a closed token file."""

    seconds: float
    cpu_seconds: float
    foreign_cpu_seconds: float | None
    loading_seconds: float
    peak_rss_bytes: int  # of the process including loading, without child processes

    @property
    def cpu_per_wall(self) -> float:
        """The number of CPUs that the run kept busy."""
        return self.cpu_seconds / self.seconds

    @property
    def quiet(self) -> bool:
        """Whether other processes, including the kernel's disk writes, used less than a tenth of one CPU."""
        return self.foreign_cpu_seconds is None or self.foreign_cpu_seconds < max(0.1 * self.seconds, 0.05)


@dataclass
class Entry:
    """One row of a table with its runs (disturbed ones separately), or the reason why there are no runs."""

    system: str
    form: str
    num_threads: int
    run: Callable[[], Run]
    slow: bool = False
    runs: list[Run] = field(default_factory=list)
    repeated: list[Run] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    problem: str | None = None

    @property
    def seconds(self) -> list[float]:
        """Of each run."""
        return [run.seconds for run in self.runs]

    @property
    def cpu_per_wall(self) -> float:
        """The median over the runs."""
        return median(run.cpu_per_wall for run in self.runs)

    def as_data(self) -> dict[str, Any]:
        """For the JSON file."""
        return {
            "system": self.system,
            "form": self.form,
            "num_threads": self.num_threads,
            "problem": self.problem,
            "runs": list(map(asdict, self.runs)),
            "disturbed_and_repeated": list(map(asdict, self.repeated)),
            "memory": self.memory,
        }


@dataclass(frozen=True)
class Text:
    """A file to encode, and the expected ids: `ids`, repeated."""

    path: Path
    ids: Reference
    times: int = 1


@dataclass(frozen=True)
class Setting:
    """The settings of all runs of a table."""

    scratch: Path  # token files are written below it and removed after the comparison
    fsync: bool
    timeout_seconds: float


def find_pipelines(names: Sequence[str]) -> tuple[dict[str, Pipeline], list[str]]:
    """Return the adapter of each requested system, and the missing systems."""
    found, missing = {}, []
    for system in dict.fromkeys(name.partition(":")[0] for name in names):
        try:
            found[system] = cast(Pipeline, importlib.import_module(f"pipelines.{system}"))
        except ImportError as error:
            missing.append(system)
            print(f"skipped: {system} cannot be imported ({error})", file=sys.stderr)
    return found, missing


def find_entries(
    names: Sequence[str], pipelines: Mapping[str, Pipeline], text: Text, num_threads: int, setting: Setting
) -> list[Entry]:
    """Return an entry for each requested form: NAME for all forms of a system, NAME:FORM for one."""
    entries = []
    for name in names:
        system, _, wanted = name.partition(":")
        if system not in pipelines:
            continue
        pipeline = pipelines[system]
        if wanted and wanted not in pipeline.FORMS:
            raise SystemExit(f"{system} has no form {wanted!r} here. Known: {', '.join(pipeline.FORMS)}.")
        for form in [wanted] if wanted else pipeline.FORMS:
            entries.append(pipeline_entry(system, form, text, num_threads, setting, slow=pipeline.SLOW))
    return entries


def pipeline_entry(
    system: str, form: str, text: Text, num_threads: int, setting: Setting, *, slow: bool = False
) -> Entry:
    """Return an entry whose runs encode the text, each into a separate folder, and compare the ids."""

    def run() -> Run:
        with tempfile.TemporaryDirectory(dir=setting.scratch) as folder:
            job = PipelineJob(system, form, str(text.path), folder, num_threads, setting.fsync)
            sample = measured("pipelines.one_run", asdict(job), num_threads, setting)
            files = map(Path, sample.facts["files"])
            if (problem := difference(files, text.ids, times=text.times)) is not None:
                raise NoFigure(problem)
        return as_run(sample)

    return Entry(system, form, num_threads, run, slow)


def measured(module: str, job: Mapping[str, object], num_threads: int, setting: Setting) -> Sample:
    """Return the result of a fresh process, or raise an error with the reason of its failure."""
    try:
        sample = measure(module, job, num_threads=num_threads, timeout_seconds=setting.timeout_seconds)
    except subprocess.TimeoutExpired:
        raise NoFigure(f"time-out after {setting.timeout_seconds:.0f} s") from None
    except ChildFailed as failure:
        raise NoFigure("crash: " + str(failure).strip().splitlines()[-1][:200]) from failure
    if "error" in sample.facts:
        raise NoFigure(f"error: {sample.facts['error']}")
    return sample


def as_run(sample: Sample) -> Run:
    """Return the timed region of a process."""
    facts = sample.facts
    return Run(
        facts["seconds"],
        facts["cpu_seconds"],
        facts["foreign_cpu_seconds"],
        facts["loading_seconds"],
        sample.peak_rss_bytes,
    )


def run_rounds(entries: Sequence[Entry], *, num_rounds: int, num_slow_rounds: int, extra: int) -> None:
    """Run the entries in alternation, every other round in reverse, so that none always follows the same one."""
    for number in range(num_rounds):
        for entry in reversed(entries) if number % 2 else entries:
            if entry.problem is None and number < (num_slow_rounds if entry.slow else num_rounds):
                _run_once(entry, extra=0 if entry.slow else extra)


def _run_once(entry: Entry, *, extra: int) -> None:
    """Add one run to the entry, repeated if it was disturbed, or the problem if it failed."""
    while (run := attempt(entry)) is not None:
        if run.quiet or len(entry.repeated) >= extra:
            entry.runs.append(run)
            return
        entry.repeated.append(run)


def attempt(entry: Entry) -> Run | None:
    """Return one run, or None with the problem written into the entry."""
    head = f"{entry.system:11} {entry.form:14} {entry.num_threads}t"
    try:
        run = entry.run()
    except NoFigure as reason:
        entry.problem = str(reason)
        print(f"{head} {entry.problem}", file=sys.stderr)
        return None
    quiet = "" if run.quiet else "  (disturbed)"
    print(
        f"{head} {run.seconds:8.3f} s  CPU {run.cpu_seconds:8.3f} s  CPU/wall {run.cpu_per_wall:.2f}{quiet}",
        file=sys.stderr,
    )
    return run


def measure_memory(entry: Entry) -> None:
    """Run the entry once more and record the peak memory of its processes; its time is not used."""
    with TreeMemory() as memory:
        run = attempt(entry)
    if run is not None:
        entry.memory = {
            "peak_bytes": max(memory.peak_bytes, entry.memory.get("peak_bytes", 0)),
            "peak_anonymous_bytes": max(memory.peak_anonymous_bytes, entry.memory.get("peak_anonymous_bytes", 0)),
            "num_samples": memory.num_samples,
        }
