"""Load the tokenizer, then turn the text file into a token file (timed), in the measured process."""

import importlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gristmill.bench.adapters import describe_error
from gristmill.bench.encoders import keep_to_cpus
from gristmill.bench.encoders.vocabularies import VocabularyFiles
from gristmill.bench.fresh_process import ForeignCpu, cpu_seconds
from gristmill.bench.pipelines import Pipeline, Task


@dataclass(frozen=True)
class PipelineJob:
    """One form of one system, and one text file."""

    module: str  # of the system
    form: str
    path: str
    vocabulary: str  # path of the description that `vocabularies.prepare` wrote
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
        return _timed(job, cast(Pipeline, importlib.import_module(job.module)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        return {"error": describe_error(error)}


def describe(outcome: Outcome) -> Outcome:
    """Return the measurements. The driver compares the ids, so that reading them costs no memory in this process."""
    return outcome


def _timed(job: PipelineJob, pipeline: Pipeline) -> Outcome:
    loading = time.perf_counter()
    files = VocabularyFiles.load(job.vocabulary)
    tok = pipeline.build(files, job.num_threads)
    loading = time.perf_counter() - loading
    form = pipeline.FORMS[job.form]
    task = Task(Path(job.path), Path(job.folder), job.num_threads, files.end_of_text)
    read_into_page_cache(task.path)
    os.sync()  # flushes the output of earlier runs before this one

    foreign, cpu, wall = ForeignCpu(), cpu_seconds(), time.perf_counter()
    made = form.encode(tok, task)
    if job.fsync and not pipeline.SYNCS:
        for file in made:
            _sync(file)
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    return {
        "seconds": wall,
        "cpu_seconds": cpu,
        "foreign_cpu_seconds": foreign.since_start(own=cpu),
        "loading_seconds": loading,
        "files": list(map(str, made)),
    }


def read_into_page_cache(path: Path) -> None:
    """Read the file once, a block at a time."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
