"""Measure the latency of short texts in this process: many calls, the median time of one."""

import importlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gristmill.bench.adapters import describe_error
from gristmill.bench.encoders import CannotLoad, Encoder
from gristmill.bench.encoders.vocabularies import VocabularyFiles

BLOCK_SECONDS = 0.005  # calls per reading of the clock, so that its cost is negligible


@dataclass(frozen=True)
class LatencyJob:
    """One system, one vocabulary, and the source of the short texts."""

    module: str
    path: str
    vocabulary: str  # path of the description that `vocabularies.prepare` wrote
    num_characters: int
    num_blocks: int


JOB = LatencyJob


def run(job: LatencyJob) -> dict[str, object]:
    """Return the seconds of one call, for one repeated text and for a thousand different texts."""
    try:
        encoder = cast(Encoder, importlib.import_module(job.module))
        encode = encoder.short(encoder.build(VocabularyFiles.load(job.vocabulary), 1))
    except CannotLoad as refusal:
        return {"refused": str(refusal)}
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        return {"refused": describe_error(error)}
    texts = short_texts(job)
    return {
        "same": _block_medians(encode, texts[:1], job.num_blocks),
        "different": _block_medians(encode, texts, job.num_blocks),
        "ids": [list(map(int, encode(text))) for text in texts[:50]],
    }


def describe(found: dict[str, object]) -> dict[str, object]:
    """Return the measurements, which `run` has already made."""
    return found


def short_texts(job: LatencyJob, *, num_texts: int = 1000) -> list[str]:
    """Return texts of the requested length from the whole file, without special tokens."""
    words = " ".join(Path(job.path).read_bytes().decode().replace("<|endoftext|>", " ").split())
    step = max(1, (len(words) - job.num_characters) // num_texts)
    return [words[i * step : i * step + job.num_characters] for i in range(num_texts)]


def _block_medians(encode: Callable[[str], Any], texts: list[str], num_blocks: int) -> list[float]:
    rounds = 1
    while (took := _block(encode, texts, rounds)) < BLOCK_SECONDS:
        rounds = max(rounds + 1, int(rounds * min(10.0, 1.2 * BLOCK_SECONDS / took)))
    seconds = [_block(encode, texts, rounds) / (rounds * len(texts)) for _ in range(num_blocks)]
    return [statistics.median(seconds), min(seconds), max(seconds)]


def _block(encode: Callable[[str], Any], texts: list[str], rounds: int) -> float:
    start = time.perf_counter()
    for _ in range(rounds):
        for text in texts:
            encode(text)
    return time.perf_counter() - start
