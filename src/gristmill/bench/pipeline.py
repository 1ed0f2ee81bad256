"""Measure time, CPU time and memory from a text file to a uint16 token file, for gristmill and other systems.

Every run is a fresh process, limited to as many CPUs as threads. The systems run in alternation, round by round. Every
token file is compared with the ids of tiktoken before its time counts. A system with other ids is a row without a time.

A run during which other processes used more than a tenth of a CPU is repeated, up to five times per entry. A run that
waits for the disk is not repeated: this wait is part of the pipeline.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gristmill.bench.adapters import Adapter, find_adapters
from gristmill.bench.contest import NOT_COMPARED, OURS, Entry, Rounds, attempt, run_rounds
from gristmill.bench.corpora import Corpus
from gristmill.bench.encoders import vocabularies
from gristmill.bench.encoders.vocabularies import VocabularyFiles
from gristmill.bench.fresh_process import ChildFailed, NotInstalled, Sample, measure
from gristmill.bench.machine import version
from gristmill.bench.pages import publish_page
from gristmill.bench.pipeline_report import Setting, make_page
from gristmill.bench.pipelines import SYSTEMS
from gristmill.bench.pipelines.one_run import PipelineJob
from gristmill.bench.pipelines.reference import ORACLE, Reference, difference, read_ids, reference_ids
from gristmill.bench.pipelines.tree_memory import TreeMemory
from gristmill.errors import OptionError
from gristmill.trace import span

__all__ = [
    "PACKAGE",
    "SYSTEMS",
    "Conditions",
    "Text",
    "bench_pipeline",
    "expected_text",
    "find_entries",
    "measure_memory",
    "pipeline_entry",
]

PACKAGE = "gristmill.bench.pipelines"
MAX_VOCABULARY = 1 << 16


@dataclass(frozen=True)
class Text:
    """A file to encode, and the expected ids: `ids`, repeated. None: gristmill failed, and no time counts."""

    path: Path
    ids: Reference | None
    source: str = ""  # whose ids they are
    problem: str | None = None  # of gristmill
    times: int = 1


@dataclass(frozen=True)
class Conditions:
    """The conditions of all runs of a table."""

    scratch: Path  # token files are written below it and removed after the comparison
    vocabulary: VocabularyFiles
    fsync: bool
    timeout_seconds: float


def bench_pipeline(
    corpus: Corpus,
    *,
    vocabulary: str,
    vocab_size: int,
    num_threads: Sequence[int],
    rounds: Rounds,
    systems: Sequence[str],
    folder: Path,
    scratch: Path | None = None,
    fsync: bool = False,
) -> int:
    """Measure every system from a text file to a token file, print the tables and write the results.

    Args:
        corpus: The text.
        vocabulary: "trained" or "gpt2".
        vocab_size: Number of tokens of the vocabulary "trained", at most 65,536.
        num_threads: A table is made for each number of threads.
        rounds: How often each form runs.
        systems: Names from `SYSTEMS`, `NAME:FORM` for one form, or dotted names of your own adapters.
        folder: Folder to write the results to.
        scratch: Folder for the token files, which are removed; by default the system's folder for temporary files.
        fsync: Whether the files of all systems must be on disk when the clock stops.

    Returns:
        The exit code: 0, or 1 if gristmill itself failed or gave other ids than tiktoken.

    Raises:
        CorpusError: The corpus has no text to train the vocabulary on.
        OptionError: The vocabulary is not available or too large, or a system is not known.
        KeyboardInterrupt: Ctrl-C ended the rounds; what was measured has been written.
    """
    adapters = find_adapters(systems, package=PACKAGE, known=SYSTEMS, needs=["FORMS"])
    is_wrong = False
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-", dir=scratch) as name:
        files = vocabularies.prepare(vocabulary, Path(name), corpus=corpus.path, vocab_size=vocab_size)
        if files.end_of_text >= MAX_VOCABULARY:
            raise OptionError(f"the token files are uint16, but {vocabulary} has larger ids. Pass --vocabulary gpt2.")
        conditions = Conditions(Path(name), files, fsync, rounds.timeout_seconds)
        with span("compare outputs"):
            text = expected_text(corpus.path, conditions)
        for number in num_threads:
            entries = find_entries(systems, adapters, text, number, conditions)
            interruption = run_rounds(entries, rounds)
            if interruption is None:
                interruption = _measure_memories(entries)
            setting = Setting(corpus, vocabulary, files.end_of_text + 1, number, fsync, text.source, Path(name))
            page = make_page(entries, adapters, setting)
            publish_page(page, folder, is_interrupted=interruption is not None)
            if interruption is not None:
                raise interruption
            is_wrong |= any(entry.is_ours and entry.problem is not None for entry in entries)
    return 1 if is_wrong or text.problem is not None else 0


def expected_text(path: Path, conditions: Conditions) -> Text:
    """Return the text with tiktoken's ids, or with gristmill's if tiktoken is not installed or fails."""
    print(f"computing the reference ids with {ORACLE}", file=sys.stderr)
    try:
        ids = reference_ids(path, conditions.vocabulary, conditions.scratch, timeout_seconds=conditions.timeout_seconds)
        return Text(path, ids, f"{ORACLE} {version(ORACLE)}")
    except NotInstalled:
        source = f"gristmill, because {ORACLE} is not installed"
    except ChildFailed as reason:
        source = f"gristmill, because {ORACLE} failed ({reason})"
    with tempfile.TemporaryDirectory(dir=conditions.scratch) as folder:
        try:
            sample = _measured(_job(f"{PACKAGE}.{OURS}", "nanogpt", path, folder, 1, conditions), conditions)
        except ChildFailed as reason:
            return Text(path, None, source, str(reason))
        return Text(path, read_ids(map(Path, sample.facts["files"])), source)


def find_entries(
    names: Sequence[str], adapters: Sequence[Adapter], text: Text, num_threads: int, conditions: Conditions
) -> list[Entry]:
    """Return an entry for each requested form; one for a system that is not installed."""
    by_system = {adapter.system: adapter for adapter in adapters}
    entries = []
    for name in names:
        system, _, wanted = name.partition(":")
        adapter = by_system[system]
        if adapter.problem is not None:
            entry = pipeline_entry(adapter, "", text, num_threads, conditions)
            entry.problem = adapter.problem
            entries.append(entry)
            continue
        forms: dict[str, Any] = adapter.facts["FORMS"]
        if wanted and wanted not in forms:
            raise OptionError(f"{system} has no form {wanted!r}. Pass {system}:FORM with one of {', '.join(forms)}.")
        entries += [
            pipeline_entry(adapter, form, text, num_threads, conditions) for form in ([wanted] if wanted else forms)
        ]
    return entries


def pipeline_entry(adapter: Adapter, form: str, text: Text, num_threads: int, conditions: Conditions) -> Entry:
    """Return an entry whose runs encode the text, each into a separate folder, and compare the ids."""
    run = partial(_run, adapter, form, text, num_threads, conditions)
    problem = text.problem if adapter.system == OURS else None
    return Entry(adapter.system, form, num_threads, run, bool(adapter.facts.get("SLOW")), problem=problem)


def _run(adapter: Adapter, form: str, text: Text, num_threads: int, conditions: Conditions) -> Sample:
    if text.ids is None:
        raise ChildFailed(NOT_COMPARED)
    with tempfile.TemporaryDirectory(dir=conditions.scratch) as folder:
        sample = _measured(_job(adapter.module, form, text.path, folder, num_threads, conditions), conditions)
        wrong = difference(map(Path, sample.facts["files"]), text.ids, times=text.times)
        if wrong is not None:
            raise ChildFailed(wrong)
    return sample


def _job(module: str, form: str, path: Path, folder: str, num_threads: int, conditions: Conditions) -> PipelineJob:
    vocabulary = str(conditions.vocabulary.description)
    return PipelineJob(module, form, str(path), vocabulary, folder, num_threads, conditions.fsync)


def _measured(job: PipelineJob, conditions: Conditions) -> Sample:
    sample = measure(
        "gristmill.bench.pipelines.one_run",
        asdict(job),
        num_threads=job.num_threads,
        timeout_seconds=conditions.timeout_seconds,
    )
    return timed_region(sample)


def timed_region(sample: Sample) -> Sample:
    """Return the sample with the time of the region that the measured process timed itself.

    Raises:
        ChildFailed: The process reported an error.
    """
    facts = sample.facts
    if "error" in facts:
        raise ChildFailed(f"failed: {facts['error']}")
    return replace(
        sample,
        seconds=facts["seconds"],
        cpu_seconds=facts["cpu_seconds"],
        foreign_cpu_seconds=facts["foreign_cpu_seconds"],
    )


def _measure_memories(entries: Sequence[Entry]) -> KeyboardInterrupt | None:
    """Measure the memory of every entry; return the interruption if there was one."""
    try:
        for entry in entries:
            if entry.is_measured:
                measure_memory(entry)
    except KeyboardInterrupt as interruption:
        return interruption
    return None


def measure_memory(entry: Entry) -> None:
    """Run the entry once more and record the peak memory of its processes; its time is not used.

    If this run fails, an entry with times keeps them and has no memory.
    """
    with TreeMemory() as memory:
        sample = attempt(entry, f"memory: {entry.name}, {entry.num_threads}t")
    if sample is None:
        entry.problem = None if entry.runs else entry.problem
    else:
        entry.memory = {
            "peak_bytes": max(memory.peak_bytes, entry.memory.get("peak_bytes", 0)),
            "peak_anonymous_bytes": max(memory.peak_anonymous_bytes, entry.memory.get("peak_anonymous_bytes", 0)),
            "num_samples": memory.num_samples,
        }
