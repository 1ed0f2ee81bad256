"""The expected ids of every token file: those of tiktoken, document by document, cached in data/benchmarks/."""

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gristmill.bench.corpora import CACHE, ROOT
from gristmill.bench.encoders import vocabularies
from gristmill.bench.pipelines import VOCABULARY, documents

Reference = npt.NDArray[np.uint16]
BLOCK_IDS = 1 << 22
ORACLE = "tiktoken"


def reference_ids(path: Path) -> Reference:
    """Return the ids of a text file, computed on first use by a separate process (90 MB take about 20 seconds)."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = CACHE / "pipeline" / f"{digest[:16]}_{VOCABULARY}.bin"
    if not target.exists():
        if importlib.util.find_spec(ORACLE) is None:
            raise SystemExit(f"{ORACLE} is not installed, but its ids are the reference. Run: pip install {ORACLE}")
        vocabularies.find(VOCABULARY)
        print(f"making the reference ids of {path.name} with {ORACLE}", file=sys.stderr)
        command = [sys.executable, "-m", "pipelines.reference", str(path.resolve()), str(target)]
        subprocess.run(command, check=True, cwd=ROOT / "benchmarks")
    return np.fromfile(target, dtype=np.uint16)


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
                    return f"different ids: {ids[first]} at token {place + first:,}, expected {wanted[first]}"
                place += len(ids)
    return None if place == num_expected else f"different ids: {place:,} tokens, expected {num_expected:,}"


def _write(path: Path, target: Path) -> None:
    from gristmill.bench.encoders import tiktoken as encoder

    tok = encoder.build(vocabularies.find(VOCABULARY), 1)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.tmp.{os.getpid()}")
    with partial.open("wb") as file:
        for document in documents(path):
            np.array([*tok.encode_ordinary(document), tok.eot_token], dtype=np.uint16).tofile(file)
    partial.replace(target)


if __name__ == "__main__":
    _write(Path(sys.argv[1]), Path(sys.argv[2]))
