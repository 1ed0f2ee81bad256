"""Run the trainer on a GPU; `gristmill.bench.fresh_process` measures it.

`gristmill.gpu.train_tokenizer` must have the arguments of `gristmill.train_tokenizer` and return the same tokenizer.
Without a CUDA device it raises an error, which the table shows.
"""

from __future__ import annotations

import importlib

from gristmill.bench.ablation.core_row import describe as describe
from gristmill.bench.ablation.python_row import AblationJob
from gristmill.encode import Tokenizer
from gristmill.reference.ablation.naive import SPECIAL

JOB = AblationJob


def run(job: AblationJob) -> Tokenizer:
    """Train on the file."""
    gpu = importlib.import_module("gristmill.gpu")
    tokenizer: Tokenizer = gpu.train_tokenizer(
        job.path,
        vocab_size=job.vocab_size,
        special_tokens=[SPECIAL],
        pattern="gpt2",
        tie_break="greatest-bytes",
        progress=None,
    )
    _ = tokenizer.merges
    return tokenizer
