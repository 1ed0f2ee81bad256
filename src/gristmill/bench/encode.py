"""Encode the same text with gristmill and other systems: MB/s of the first (cold) and further (warm) passes.

Every run is a fresh process that builds its tokenizer, then encodes the whole text once cold and several times warm.
The systems run in alternation, round by round. The ids are compared before a time counts, with tiktoken's if it is
installed. A system with other ids is a row without a time.

A system has several APIs; all are measured, and ratios refer to the fastest. A result for several threads counts only
if they really ran: CPU time / wall time > 1.3. A disturbed run (gristmill below 1.3, or other processes used more than
a tenth of a CPU) is repeated, up to five times per API.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from gristmill.bench.adapters import Adapter, find_adapters
from gristmill.bench.contest import LEAST_CPU_PER_WALL, NOT_COMPARED, OURS, Entry, Rounds, run_rounds
from gristmill.bench.corpora import Corpus
from gristmill.bench.encode_report import Setting, make_page
from gristmill.bench.encoders import SYSTEMS, vocabularies
from gristmill.bench.encoders.passes import EncodeJob
from gristmill.bench.fresh_process import ChildFailed, Sample, measure
from gristmill.bench.machine import version
from gristmill.bench.pages import publish_page
from gristmill.errors import OptionError
from gristmill.trace import span

__all__ = ["PACKAGE", "REFERENCE", "SYSTEMS", "Expected", "bench_encode", "expected_ids", "find_entries", "passes_of"]

PACKAGE = "gristmill.bench.encoders"
REFERENCE = "tiktoken"
OTHER_IDS = "other ids"
PASSES = ("cold", "warm")
# The API whose time is shown for 1, 2, … workers.
WORKER_API = "encode_file"


@dataclass(frozen=True)
class Expected:
    """The digest that the ids of every system must have."""

    digest: str | None
    source: str  # whose ids they are
    problem: str | None = None  # of gristmill


def bench_encode(
    corpus: Corpus,
    *,
    vocabulary: str,
    vocab_size: int,
    num_threads: Sequence[int],
    num_workers: Sequence[int],
    rounds: Rounds,
    systems: Sequence[str],
    folder: Path,
    num_warm: int = 3,
    to_disk: bool = False,
) -> int:
    """Measure the encoding of every system, print the tables and write the results.

    Args:
        corpus: The text.
        vocabulary: "trained", "gpt2" or "cl100k".
        vocab_size: Number of tokens of the vocabulary "trained".
        num_threads: A table is made for each number of threads.
        num_workers: Numbers of threads in the table of gristmill's speed-up.
        rounds: How often each API runs.
        systems: Names from `SYSTEMS`, `NAME:API` for one API, or dotted names of your own adapters.
        folder: Folder to write to.
        num_warm: Warm passes per run.
        to_disk: Whether to write the ids to a uint16 file, within the timed region.

    Returns:
        The exit code: 0, or 1 if gristmill itself failed or gave other ids than tiktoken.

    Raises:
        CorpusError: The corpus has no text to train the vocabulary on.
        OptionError: The vocabulary is not available, the corpus is too small for it, or a system is not known.
        KeyboardInterrupt: Ctrl-C ended the rounds; what was measured has been written.
    """
    adapters = find_adapters(systems, package=PACKAGE, known=SYSTEMS, needs=["APIS"])
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as scratch:
        files = vocabularies.prepare(vocabulary, Path(scratch), corpus=corpus.path, vocab_size=vocab_size)
        if to_disk and files.end_of_text >= 1 << 16:
            raise OptionError(f"--to-disk writes uint16, but {vocabulary} has larger ids. Pass a smaller vocabulary.")
        ids_path = str(Path(scratch) / "ids.bin") if to_disk else None
        job = EncodeJob("", "", str(corpus.path), str(files.description), 1, num_warm, ids_path)
        with span("compare outputs"):
            expected = expected_ids(job, rounds)
        is_wrong = expected.problem is not None
        for number in num_threads:
            entries = find_entries(systems, adapters, replace(job, num_threads=number), expected, rounds)
            interruption = run_rounds(entries, rounds, starved=_starved)
            is_last = number == num_threads[-1]
            workers = _workers(job, num_workers, expected, rounds) if is_last and interruption is None else []
            few_rounds = replace(rounds, num_rounds=min(rounds.num_rounds, 3))
            interruption = interruption or run_rounds(workers, few_rounds, starved=_starved)
            setting = Setting(corpus, vocabulary, files.end_of_text + 1, number, to_disk, expected.source)
            page = make_page(entries, workers, adapters, setting)
            publish_page(page, folder, is_interrupted=interruption is not None)
            if interruption is not None:
                raise interruption
            is_wrong |= any(entry.is_ours and entry.problem is not None for entry in [*entries, *workers])
    return 1 if is_wrong else 0


def expected_ids(job: EncodeJob, rounds: Rounds) -> Expected:
    """Return the digest of tiktoken's ids, or of gristmill's if tiktoken is not installed or fails."""
    ours = _digest(OURS, replace(job, api=WORKER_API), rounds)
    failure = str(ours) if isinstance(ours, ChildFailed) else None
    own = None if isinstance(ours, ChildFailed) else ours
    if version(REFERENCE) == "-":
        return Expected(own, f"gristmill, because {REFERENCE} is not installed", failure)
    print(f"computing the reference ids with {REFERENCE}", file=sys.stderr)
    theirs = _digest(REFERENCE, replace(job, api="encode_to_numpy"), rounds)
    if isinstance(theirs, ChildFailed):
        return Expected(own, f"gristmill, because {REFERENCE} failed ({theirs})", failure)
    source = f"{REFERENCE} {version(REFERENCE)}"
    return Expected(theirs, source, failure if theirs == ours or failure else f"{OTHER_IDS} than {source}")


def _digest(system: str, job: EncodeJob, rounds: Rounds) -> str | ChildFailed:
    check = replace(job, module=f"{PACKAGE}.{system}", num_threads=1, num_warm=0, ids_path=None)
    try:
        return str(_measured(check, rounds).facts["digest"])
    except ChildFailed as reason:
        return reason


def find_entries(
    names: Sequence[str], adapters: Sequence[Adapter], job: EncodeJob, expected: Expected, rounds: Rounds
) -> list[Entry]:
    """Return an entry for each requested API that can use the threads; one for a system that is not installed."""
    by_system = {adapter.system: adapter for adapter in adapters}
    entries = []
    for name in names:
        system, _, wanted = name.partition(":")
        adapter = by_system[system]
        if adapter.problem is not None:
            entries.append(Entry(system, "", job.num_threads, partial(_not_run, adapter), problem=adapter.problem))
            continue
        apis: Mapping[str, Any] = adapter.facts["APIS"]
        if wanted and wanted not in apis:
            raise OptionError(f"{system} has no API {wanted!r}. Pass {system}:API with one of {', '.join(apis)}.")
        for api, how in apis.items():
            if api == wanted or (not wanted and not ((how or {}).get("one_thread") and job.num_threads > 1)):
                entries.append(_entry(adapter, api, job, expected, rounds))
    return entries


def _not_run(adapter: Adapter) -> Sample:
    raise ChildFailed(adapter.problem or "not measured")


def _entry(adapter: Adapter, api: str, job: EncodeJob, expected: Expected, rounds: Rounds) -> Entry:
    slow = bool(adapter.facts.get("SLOW"))
    own = replace(job, module=adapter.module, api=api, num_warm=min(job.num_warm, 1) if slow else job.num_warm)
    problem = expected.problem if adapter.system == OURS else None
    return Entry(adapter.system, api, job.num_threads, partial(_run, own, expected, rounds), slow, problem=problem)


def _workers(job: EncodeJob, num_workers: Sequence[int], expected: Expected, rounds: Rounds) -> list[Entry]:
    """Return the entries of gristmill for each number of workers, which are threads."""
    own = replace(job, module=f"{PACKAGE}.{OURS}", api=WORKER_API, num_warm=0)
    return [
        Entry(OURS, WORKER_API, number, partial(_run, replace(own, num_threads=number), expected, rounds))
        for number in num_workers
    ]


def _run(job: EncodeJob, expected: Expected, rounds: Rounds) -> Sample:
    """Return one run with the expected ids."""
    if expected.digest is None:
        raise ChildFailed(NOT_COMPARED)
    sample = _measured(job, rounds)
    if sample.facts["digest"] != expected.digest:
        raise ChildFailed(OTHER_IDS)
    return sample


def _measured(job: EncodeJob, rounds: Rounds) -> Sample:
    """Return one run; its time is that of the cold pass."""
    sample = measure(
        "gristmill.bench.encoders.passes",
        asdict(job),
        num_threads=job.num_threads,
        timeout_seconds=rounds.timeout_seconds,
    )
    facts = sample.facts
    if "refused" in facts:
        raise ChildFailed(f"cannot: {facts['refused']}")
    if "error" in facts:
        raise ChildFailed(f"failed: {facts['error']}")
    cold, foreign = facts["cold"], sample.foreign_cpu_seconds
    # Other processes disturbed the cold pass in proportion to its share of the time.
    share = None if foreign is None else foreign * cold["seconds"] / sample.seconds
    return replace(sample, seconds=cold["seconds"], cpu_seconds=cold["cpu_seconds"], foreign_cpu_seconds=share)


def passes_of(sample: Sample, passes: str) -> list[dict[str, float]]:
    """Return the cold pass, or all warm passes."""
    found = sample.facts[passes]
    return found if isinstance(found, list) else [found]


def _starved(entry: Entry, sample: Sample) -> bool:
    """Return whether a run got too few CPUs. Other systems may leave CPUs idle."""
    if not entry.is_ours or entry.num_threads == 1:
        return False
    found = [passes_of(sample, passes) for passes in PASSES if passes_of(sample, passes)]
    return any(median(one["cpu_seconds"] / one["seconds"] for one in each) <= LEAST_CPU_PER_WALL for each in found)
