"""The digest of the merges that `tokenizers` learns, remembered: it takes minutes on the large corpus."""

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict

import corpora
from fresh_process import measure
from machine import version
from rivals import TrainJob

REMEMBERED = corpora.CACHE / "tokenizers_digests.json"


def tokenizers_digest(job: TrainJob, corpus: corpora.Corpus, measured: Collection[str] | None) -> str | None:
    """Return the digest of the merges of `tokenizers` for this job; None when it is not installed.

    `measured` are the digests of runs made just now; without them a remembered one is taken, or a run made for it.
    """
    if version("tokenizers") == "-":
        return None
    known = json.loads(REMEMBERED.read_text()) if REMEMBERED.exists() else {}
    key = f"{_file_digest(corpus)} {job.num_merges} {version('tokenizers')}"
    if measured:
        known[key] = next(iter(measured))
    elif key not in known:
        sample = measure("rivals.tokenizers", asdict(job), num_threads=job.num_threads)
        known[key] = sample.facts["digest"]
    REMEMBERED.parent.mkdir(parents=True, exist_ok=True)
    REMEMBERED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return str(known[key])


def _file_digest(corpus: corpora.Corpus) -> str:
    with corpus.path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
