"""Cache the digest of the merges that `tokenizers` learns, which takes minutes on the large corpus."""

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict

import corpora
from gristmill.bench.fresh_process import measure
from gristmill.bench.machine import version
from gristmill.bench.rivals import TrainJob

REMEMBERED = corpora.CACHE / "tokenizers_digests.json"


def tokenizers_digest(job: TrainJob, corpus: corpora.Corpus, measured: Collection[str] | None) -> str | None:
    """Return the digest of the merges of `tokenizers` for this job; None when it is not installed.

    `measured` are the digests of the current runs; without them a cached digest is used, or computed by a run.
    """
    if version("tokenizers") == "-":
        return None
    key = f"{_file_digest(corpus)} {job.num_merges} {version('tokenizers')}"
    digest = next(iter(measured)) if measured else _remembered().get(key)
    if digest is None:
        sample = measure("rivals.tokenizers", asdict(job), num_threads=job.num_threads)
        digest = str(sample.facts["digest"])
    REMEMBERED.parent.mkdir(parents=True, exist_ok=True)
    REMEMBERED.write_text(json.dumps(_remembered() | {key: digest}, indent=1, sort_keys=True) + "\n")
    return digest


def _remembered() -> dict[str, str]:
    return dict(json.loads(REMEMBERED.read_text())) if REMEMBERED.exists() else {}


def _file_digest(corpus: corpora.Corpus) -> str:
    with corpus.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
