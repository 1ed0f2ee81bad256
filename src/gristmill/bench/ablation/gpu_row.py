"""Run on a GPU; `gristmill.bench.fresh_process` measures it, the start of CUDA included."""

from __future__ import annotations

from gristmill.bench.ablation.core_row import describe, train
from gristmill.bench.ablation.python_row import AblationJob
from gristmill.encode import Tokenizer

__all__ = ["JOB", "describe", "run"]

JOB = AblationJob


def run(job: AblationJob) -> Tokenizer:
    """Train on the file, on all GPUs of the machine."""
    return train(job, device="cuda")
