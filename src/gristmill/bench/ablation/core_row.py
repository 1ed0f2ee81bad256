"""Run the native core; `gristmill.bench.fresh_process` measures it."""

from __future__ import annotations

import warnings

from gristmill.bench.ablation.python_row import AblationJob
from gristmill.encode import Tokenizer
from gristmill.errors import EarlyStopWarning
from gristmill.reference.ablation.naive import SPECIAL
from gristmill.train import train_tokenizer

JOB = AblationJob


def run(job: AblationJob) -> Tokenizer:
    """Train on the file, on the CPU."""
    return train(job, device="cpu")


def train(job: AblationJob, *, device: str) -> Tokenizer:
    """Train on the file. The merges become Python objects, as in the other rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EarlyStopWarning)  # the table reports the number of merges
        tokenizer = train_tokenizer(
            job.path,
            vocab_size=job.vocab_size,
            special_tokens=[SPECIAL],
            pattern="gpt2",
            tie_break="greatest-bytes",
            num_threads=job.num_workers,
            device=device,
            progress=None,
        )
    _ = tokenizer.merges
    return tokenizer


def describe(tokenizer: Tokenizer) -> dict[str, object]:
    """Return the merges, as hexadecimal text, and the times of the stages."""
    profile = tokenizer.profile
    seconds = {stage.stage: stage.seconds for stage in profile.stages} if profile is not None else {}
    return {
        "merges": [[left.hex(), right.hex()] for left, right in tokenizer.merges],
        "pretokenize_seconds": seconds.get("count", 0.0) + seconds.get("join", 0.0),
        "total_merge_seconds": seconds.get("setup", 0.0) + seconds.get("merge", 0.0),
        "is_complete": True,
    }
