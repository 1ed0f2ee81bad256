"""The expected ids of every token file: those of tiktoken, document by document, computed in a separate process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gristmill.bench.encoders.vocabularies import VocabularyFiles
from gristmill.bench.fresh_process import measure
from gristmill.bench.pipelines import documents

Reference = npt.NDArray[np.uint16]
BLOCK_IDS = 1 << 22
ORACLE = "tiktoken"
OTHER_IDS = "other ids"


@dataclass(frozen=True)
class ReferenceJob:
    """One text, one vocabulary, and the file to write."""

    path: str
    vocabulary: str
    target: str


JOB = ReferenceJob


def reference_ids(path: Path, files: VocabularyFiles, folder: Path, *, timeout_seconds: float) -> Reference:
    """Return the ids of a text file (90 MB take about 20 seconds).

    Raises:
        NotInstalled: tiktoken is not installed.
        ChildFailed: tiktoken failed.
    """
    target = folder / "reference.bin"
    job = ReferenceJob(str(path), str(files.description), str(target))
    measure(__name__, asdict(job), num_threads=1, timeout_seconds=timeout_seconds)
    return np.fromfile(target, dtype=np.uint16)


def run(job: ReferenceJob) -> None:
    """Write the ids, in the measured process."""
    from gristmill.bench.encoders import tiktoken as encoder

    tok = encoder.build(VocabularyFiles.load(job.vocabulary), 1)
    with Path(job.target).open("wb") as file:
        for document in documents(Path(job.path)):
            np.array([*tok.encode_ordinary(document), tok.eot_token], dtype=np.uint16).tofile(file)


def describe(_result: None) -> dict[str, object]:
    """Return nothing: the ids are in the file."""
    return {}


def read_ids(files: Iterable[Path]) -> Reference:
    """Return the ids of token files, joined."""
    return np.concatenate([np.fromfile(path, dtype=np.uint16) for path in files])


def difference(files: Iterable[Path], expected: Reference, *, times: int = 1) -> str | None:
    """Return the difference between the ids in the files and `expected`, repeated; None if they are equal."""
    place, num_expected = 0, len(expected) * times
    for path in files:
        with path.open("rb") as file:
            while len(ids := np.fromfile(file, dtype=np.uint16, count=BLOCK_IDS)):
                wanted = np.take(expected, np.arange(place, min(place + len(ids), num_expected)), mode="wrap")
                same = min(len(ids), len(wanted))
                if len(wrong := np.flatnonzero(ids[:same] != wanted[:same])):
                    first = int(wrong[0])
                    return f"{OTHER_IDS}: {ids[first]} at token {place + first:,}, expected {wanted[first]}"
                place += len(ids)
    return None if place == num_expected else f"{OTHER_IDS}: {place:,} tokens, expected {num_expected:,}"
