"""fastokens: takes `str`; `encode_batch_flat` returns the ids as bytes that numpy reads in place."""

import os
from collections.abc import Callable
from typing import Any

import fastokens
import numpy as np

from gristmill.bench.encoders import Api, Takes
from gristmill.bench.encoders.vocabularies import VocabularyFiles

DISTRIBUTION = "fastokens"
THREADS = "`FASTOKENS_BPE_THREADS` and `RAYON_NUM_THREADS`"
SLOW = False


def build(files: VocabularyFiles, num_threads: int) -> fastokens.Tokenizer:
    """Load the ranks if it has the pattern by name, otherwise the tokenizer.json."""
    os.environ["FASTOKENS_BPE_THREADS"] = str(num_threads)
    if files.pattern == "gpt2":
        return fastokens.Tokenizer.from_file(str(files.huggingface))
    return fastokens.Tokenizer.from_tiktoken(
        str(files.tiktoken), encoding=f"{files.name}_base", special_tokens=files.special_tokens
    )


def short(tok: fastokens.Tokenizer) -> Callable[[str], Any]:
    """`encode(text).ids`."""
    return lambda text: tok.encode(text).ids


def _encode(tok: fastokens.Tokenizer, text: str, num_threads: int) -> Any:
    return tok.encode(text).ids


def _encode_flat(tok: fastokens.Tokenizer, text: str, num_threads: int) -> Any:
    return np.frombuffer(tok.encode_batch_flat([text])[0], np.uint32)


def _encode_documents(tok: fastokens.Tokenizer, documents: list[str], num_threads: int) -> Any:
    return np.frombuffer(tok.encode_batch_flat(documents)[0], np.uint32)


APIS = {
    "encode_batch_flat": Api(Takes.TEXT, _encode_flat),
    "encode_batch_flat, documents": Api(Takes.DOCUMENTS, _encode_documents),
    "encode": Api(Takes.TEXT, _encode),
}
