"""Run one program of `gristmill.reference.ablation` within a time limit; `gristmill.bench.fresh_process` measures it.

If pretokenizing the file would take longer than the time limit, only the start of the file is pretokenized. Its time is
extrapolated by the number of bytes, and the native core counts the words for the merges.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from gristmill.count import count_words
from gristmill.reference.ablation import PROGRAMS, Program, Training, train
from gristmill.reference.ablation.naive import SPECIAL
from gristmill.reference.ablation.rare_words import drop_rare

HEAD_BYTES = 8_000_000


@dataclass(frozen=True)
class AblationJob:
    """What a row trains on."""

    letter: str
    path: str
    vocab_size: int
    num_workers: int
    time_limit: float


@dataclass(frozen=True)
class Outcome:
    """The result of a program."""

    training: Training
    is_pretokenize_extrapolated: bool


JOB = AblationJob


def run(job: AblationJob) -> Outcome:
    """Run the program."""
    program, path = PROGRAMS[job.letter], Path(job.path)
    estimate = _estimated_pretokenize_seconds(program, path, job.num_workers)
    words = None
    if estimate is not None and estimate > job.time_limit:
        counted = count_words(path, special_tokens=[SPECIAL], num_threads=job.num_workers, progress=None)
        words = dict(counted.items())
        words = words if program.is_exact else drop_rare(words)
    training = train(
        program, path, job.vocab_size, num_processes=job.num_workers, time_limit=job.time_limit, words=words
    )
    if words is not None and estimate is not None:
        training = replace(training, pretokenize_seconds=estimate)
    return Outcome(training, words is not None)


def describe(outcome: Outcome) -> dict[str, object]:
    """Return the merges, as hexadecimal text, and the times."""
    training = outcome.training
    return {
        "merges": [[left.hex(), right.hex()] for left, right in training.merges],
        "pretokenize_seconds": training.pretokenize_seconds,
        "is_pretokenize_extrapolated": outcome.is_pretokenize_extrapolated,
        "merge_seconds": [round(seconds, 7) for seconds in training.merge_seconds],
        "is_complete": training.is_complete,
    }


def _estimated_pretokenize_seconds(program: Program, path: Path, num_workers: int) -> float | None:
    """Return the time for the whole file by the time for its start; None for a small file, which is simply read."""
    size = path.stat().st_size
    if size < 2 * HEAD_BYTES:
        return None
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    end = head.rfind(SPECIAL.encode())
    head = head[:end] if end > 0 else head
    with tempfile.TemporaryDirectory() as folder:
        start_of_file = Path(folder) / "head.txt"
        start_of_file.write_bytes(head)
        start = time.perf_counter()
        program.count_words(start_of_file, num_workers)
        return (time.perf_counter() - start) * size / len(head)
