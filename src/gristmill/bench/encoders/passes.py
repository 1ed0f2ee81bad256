"""Build the tokenizer, encode the text several times, and report time, memory and ids, in the measured process.

The tokenizer is built and called once with an empty text, so that lazy initialization counts as loading in every
system. The first pass is cold (no piece of the text was seen before), the others are warm.
"""

import hashlib
import importlib
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from gristmill.bench.adapters import describe_error
from gristmill.bench.encoders import Api, CannotLoad, Encoder, Ids, Takes, documents
from gristmill.bench.encoders.vocabularies import VocabularyFiles


@dataclass(frozen=True)
class EncodeJob:
    """One system, one API, one text, one vocabulary."""

    module: str  # of the system
    api: str
    path: str
    vocabulary: str  # path of the description that `vocabularies.prepare` wrote
    num_threads: int
    num_warm: int
    ids_path: str | None = None  # output file for the ids as uint16, within the timed region
    memory_limit_bytes: int | None = None  # limit of the address space, for adversarial texts


@dataclass(frozen=True)
class Pass:
    """The time and memory of one encoding of the whole text."""

    seconds: float
    cpu_seconds: float


JOB = EncodeJob
Outcome = dict[str, object]


def run(job: EncodeJob) -> Outcome:
    """Run the passes; an exception of the system, including panics of its core, is returned as `error`."""
    if job.memory_limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (job.memory_limit_bytes, job.memory_limit_bytes))
    try:
        return _passes(job, cast(Encoder, importlib.import_module(job.module)))
    except CannotLoad as refusal:
        return {"refused": str(refusal)}
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        return {"error": describe_error(error)}


def describe(outcome: Outcome) -> Outcome:
    """Return the measurements, which `run` has already made."""
    return outcome


def _passes(job: EncodeJob, encoder: Encoder) -> Outcome:
    api = encoder.APIS[job.api]
    files, given = VocabularyFiles.load(job.vocabulary), _given(job.path, api.takes)
    (tok, _), loading = _timed(lambda: _loaded(encoder, api, files, job.num_threads))

    def encode() -> Any:
        result = api.encode(tok, given, job.num_threads)
        if job.ids_path is not None:
            api.ids(result).astype(np.uint16, copy=False).tofile(job.ids_path)
        return result

    resident = _reset_peak()
    result, cold = _timed(encode)
    peak = _memory_bytes("VmHWM")
    num_ids, digest = _summary(api.ids(result))
    warm = []
    for _ in range(job.num_warm):
        del result  # freed before the next pass, so that no pass has two results in memory
        result, took = _timed(encode)
        warm.append(asdict(took))
    same = not warm or _summary(api.ids(result)) == (num_ids, digest)
    del result
    return {
        "loading_seconds": loading.seconds,
        "num_ids": num_ids,
        "digest": digest if same else "changes from pass to pass",
        "cold": asdict(cold),
        "warm": warm,
        "peak_bytes": peak - resident,
        "kept_bytes": _memory_bytes("VmRSS") - resident,
        "cache": encoder.cache_figures(tok) if hasattr(encoder, "cache_figures") else {},
    }


def _loaded(encoder: Encoder, api: Api, files: VocabularyFiles, num_threads: int) -> tuple[Any, Any]:
    tok = encoder.build(files, num_threads)
    if api.takes is not Takes.PATH:
        return tok, api.encode(tok, {Takes.BYTES: b"", Takes.TEXT: "", Takes.DOCUMENTS: [""]}[api.takes], num_threads)
    with tempfile.NamedTemporaryFile() as empty:
        return tok, api.encode(tok, empty.name, num_threads)


def _given(path: str, takes: Takes) -> Any:
    if takes is Takes.PATH:
        Path(path).read_bytes()  # reads the file into the page cache
        return path
    data = Path(path).read_bytes()
    if takes is Takes.BYTES:
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CannotLoad("takes str only, and the text is not UTF-8") from error
    return text if takes is Takes.TEXT else documents(text)


def _timed(encode: Callable[[], Any]) -> tuple[Any, Pass]:
    cpu, wall = time.process_time(), time.perf_counter()
    result = encode()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return result, Pass(wall, cpu)


def _summary(ids: Ids) -> tuple[int, str]:
    """Return the number of ids and a digest, which does not depend on the dtype."""
    return len(ids), hashlib.sha256(np.ascontiguousarray(ids, dtype=np.uint32).data).hexdigest()


def _reset_peak() -> int:
    """Reset the high-water mark to the resident memory, if the kernel allows it, and return the resident memory."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5", encoding="ascii")
    return _memory_bytes("VmRSS")


def _memory_bytes(name: str) -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    line = next(
        line
        for line in status.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.startswith(name + ":")
    )
    return int(line.split()[1]) * 1024
