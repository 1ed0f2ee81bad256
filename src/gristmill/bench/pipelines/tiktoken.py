"""tiktoken, as nanoGPT prepares OpenWebText: map documents in processes, then write a memmap in 1,024 batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tiktoken

from gristmill.bench.encoders import tiktoken as encoder
from gristmill.bench.encoders.vocabularies import VocabularyFiles
from gristmill.bench.pipelines import Form, Task, documents
from gristmill.bench.pipelines.processes import Tokens, in_batches, map_documents

DISTRIBUTION = encoder.DISTRIBUTION
THREADS = "processes"
SLOW = True
SYNCS = False
NUM_BATCHES = 1024


def build(files: VocabularyFiles, num_threads: int) -> tiktoken.Encoding:
    """Build the encoding from the ranks."""
    tok = encoder.build(files, num_threads)
    tok.encode_ordinary("")
    return tok


def _encode_batch(tok: tiktoken.Encoding, batch: Sequence[str]) -> list[Tokens]:
    return [np.array([*tok.encode_ordinary(document), tok.eot_token], dtype=np.uint16) for document in batch]


def _map_and_write(tok: Any, task: Task) -> list[Path]:
    mapped = map_documents(tok, documents(task.path), _encode_batch, num_processes=task.num_threads)
    num_tokens = sum(map(len, mapped))
    file = np.memmap(task.token_file, dtype=np.uint16, mode="w+", shape=(num_tokens,))
    begin = 0
    for batch in in_batches(mapped, NUM_BATCHES):
        file[begin : begin + len(batch)] = batch
        begin += len(batch)
    del file  # unmaps and closes
    return [task.token_file]


FORMS = {"map": Form("processes map `encode_ordinary` over documents, then a memmap in 1,024 batches", _map_and_write)}
