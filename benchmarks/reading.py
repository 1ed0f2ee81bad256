"""Iterate over all texts of a file with a reader library on one thread, in the measured process."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from gristmill.bench.adapters import describe_error
from gristmill.bench.encoders import keep_to_cpus
from gristmill.bench.fresh_process import ForeignCpu, cpu_seconds
from gristmill.bench.pipelines.one_run import Outcome, read_into_page_cache


@dataclass(frozen=True)
class ReadingJob:
    """One file."""

    kind: str
    path: str


JOB = ReadingJob


def run(job: ReadingJob) -> Outcome:
    """Read the file."""
    keep_to_cpus(1)
    from input_kinds import KINDS  # imported late, because a library may start threads on import

    path = Path(job.path)
    read_into_page_cache(path)
    os.sync()
    foreign, cpu, wall = ForeignCpu(), cpu_seconds(), time.perf_counter()
    try:
        num_documents = KINDS[job.kind].count(path)
    except Exception as error:
        return {"error": describe_error(error)}
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    return {
        "seconds": wall,
        "cpu_seconds": cpu,
        "foreign_cpu_seconds": foreign.since_start(own=cpu),
        "loading_seconds": 0.0,
        "num_documents": num_documents,
    }


def describe(outcome: Outcome) -> Outcome:
    """Return the measurements, which `run` has already made."""
    return outcome
