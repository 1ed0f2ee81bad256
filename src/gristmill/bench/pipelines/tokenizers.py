"""Hugging Face tokenizers, as the common script uses it: map batches of documents in processes, join, write a memmap.

`encode_batch_fast` omits the offsets that `encode_batch` of the common script computes and drops. Its threads are off,
because they would compete with the processes for CPUs.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from gristmill.bench.encoders import tokenizers as encoder
from gristmill.bench.encoders.vocabularies import SPECIAL, VocabularyFiles
from gristmill.bench.pipelines import Form, Task, documents
from gristmill.bench.pipelines.processes import Tokens, map_documents

DISTRIBUTION = encoder.DISTRIBUTION
THREADS = "processes"
SLOW = True
SYNCS = False


def build(files: VocabularyFiles, num_threads: int) -> Tokenizer:
    """Load the tokenizer.json."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tok = encoder.build(files, num_threads)
    tok.encode("")
    return tok


def _encode_batch(tok: Tokenizer, batch: Sequence[str]) -> list[Tokens]:
    end_of_text = tok.token_to_id(SPECIAL)
    return [np.array([*encoding.ids, end_of_text], dtype=np.uint16) for encoding in tok.encode_batch_fast(batch)]


def _map_and_write(tok: Any, task: Task) -> list[Path]:
    mapped = map_documents(tok, documents(task.path), _encode_batch, num_processes=task.num_threads)
    tokens = np.concatenate(mapped)
    file = np.memmap(task.token_file, dtype=np.uint16, mode="w+", shape=tokens.shape)
    file[:] = tokens
    del file  # unmaps and closes
    return [task.token_file]


FORMS = {"map": Form("processes map `encode_batch_fast` over batches of documents, then a memmap", _map_and_write)}
