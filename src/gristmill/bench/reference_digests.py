"""Cache the digest of the merges that `tokenizers` learns, which takes minutes on a large corpus."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict

from gristmill.bench.corpora import Corpus, cache_folder
from gristmill.bench.fresh_process import measure
from gristmill.bench.machine import version
from gristmill.bench.rivals import TrainJob
from gristmill.publish import publish

__all__ = ["MAX_BYTES", "tokenizers_digest"]

# `tokenizers` needs about twice the corpus in memory, so larger corpora are compared only if it is measured anyway.
MAX_BYTES = 1_000_000_000


def tokenizers_digest(job: TrainJob, corpus: Corpus, *, timeout_seconds: float) -> str | None:
    """Return the digest of the merges of `tokenizers` for this job, from the cache or from a run.

    Returns:
        The digest, or None if the corpus has more than `MAX_BYTES` bytes and the cache has no digest.

    Raises:
        ChildFailed: The run failed.
    """
    key = f"{_file_digest(corpus)} {job.num_merges} {version('tokenizers')}"
    if (known := _remembered().get(key)) is not None:
        return known
    if corpus.num_bytes > MAX_BYTES:
        return None
    print("comparing the merges with those of tokenizers", file=sys.stderr)
    sample = measure(
        "gristmill.bench.rivals.tokenizers",
        asdict(job),
        num_threads=job.num_threads,
        timeout_seconds=timeout_seconds,
    )
    digest = str(sample.facts["digest"])
    path = cache_folder() / "tokenizers_digests.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with publish(path) as file:
        file.write(json.dumps(_remembered() | {key: digest}, indent=1, sort_keys=True).encode() + b"\n")
    return digest


def _remembered() -> dict[str, str]:
    """Return the cached digests; a damaged file counts as empty."""
    try:
        found = json.loads((cache_folder() / "tokenizers_digests.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _file_digest(corpus: Corpus) -> str:
    with corpus.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
