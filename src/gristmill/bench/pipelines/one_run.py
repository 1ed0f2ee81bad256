"""Load the tokenizer, then turn the text file into a token file (timed), in the measured process."""

import importlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gristmill.bench.encoders import described, keep_to_cpus, vocabularies
from gristmill.bench.fresh_process import ForeignCpu, cpu_seconds
from gristmill.bench.pipelines import VOCABULARY, Pipeline, Task


@dataclass(frozen=True)
class PipelineJob:
    """One form of one system, and one text file."""

    system: str
    form: str
    path: str
    folder: str  # empty output folder
    num_threads: int
    fsync: bool  # the token file must be on disk before the clock stops


JOB = PipelineJob
Outcome = dict[str, object]


def run(job: PipelineJob) -> Outcome:
    """Make the token file; an exception of the system, including panics of its core, is returned as `error`."""
    # Must be first: a new thread inherits the CPU affinity of its creator.
    keep_to_cpus(job.num_threads)
    try:
        return _timed(job, cast(Pipeline, importlib.import_module(f"pipelines.{job.system}")))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        return {"error": described(error)}


def describe(outcome: Outcome) -> Outcome:
    """Return the measurements. The driver compares the ids, so that reading them costs no memory in this process."""
    return outcome


def _timed(job: PipelineJob, pipeline: Pipeline) -> Outcome:
    loading = time.perf_counter()
    tok = pipeline.build(vocabularies.find(VOCABULARY), job.num_threads)
    loading = time.perf_counter() - loading
    form, task = pipeline.FORMS[job.form], Task(Path(job.path), Path(job.folder), job.num_threads)
    read_into_page_cache(task.path)
    os.sync()  # flushes the output of earlier runs before this one

    foreign, cpu, wall = ForeignCpu(), cpu_seconds(), time.perf_counter()
    files = form.encode(tok, task)
    if job.fsync and not pipeline.SYNCS:
        for file in files:
            _sync(file)
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    return {
        "seconds": wall,
        "cpu_seconds": cpu,
        "foreign_cpu_seconds": foreign.since_start(own=cpu),
        "loading_seconds": loading,
        "files": list(map(str, files)),
    }


def read_into_page_cache(path: Path) -> None:
    """Read the file once, a block at a time."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
