"""gigatoken: all APIs that return the ids of one large text; the fastest depends on text and threads.

`encode` has one thread. `encode_batch` and `encode_files` split a text at safe positions. With `separator=` the
separators are dropped from the ids, so this form is omitted: it does less work. The awkward array is flattened after
the clock stops.
"""

from collections.abc import Callable
from typing import Any

import awkward
import gigatoken
import numpy as np

from gristmill.bench.encoders import Api, Ids, Takes
from gristmill.bench.encoders.vocabularies import VocabularyFiles

DISTRIBUTION = "gigatoken"
THREADS = "`parallel=` and `RAYON_NUM_THREADS`"
SLOW = False
PRETOKENIZERS = {"gpt2": "gpt2", "cl100k": "gpt4"}


def build(files: VocabularyFiles, num_threads: int) -> gigatoken.Tokenizer:
    """Load the ranks."""
    return gigatoken.Tokenizer.from_tiktoken(files.tiktoken, PRETOKENIZERS[files.pattern], files.special_tokens)


def short(tok: gigatoken.Tokenizer) -> Callable[[str], Any]:
    """`encode`, which returns an array."""
    encode: Callable[[str], Any] = tok.encode
    return encode


def _flat(result: awkward.Array) -> Ids:
    return np.asarray(awkward.flatten(result, axis=1))


def _encode(tok: gigatoken.Tokenizer, text: bytes, num_threads: int) -> Any:
    return tok.encode(text)


def _encode_batch(tok: gigatoken.Tokenizer, text: bytes, num_threads: int) -> Any:
    return tok.encode_batch([text], parallel=num_threads > 1)


def _encode_source(tok: gigatoken.Tokenizer, text: bytes, num_threads: int) -> Any:
    return tok.encode_batch(gigatoken.BytesSource(text), parallel=num_threads > 1)


def _encode_files(tok: gigatoken.Tokenizer, path: str, num_threads: int) -> Any:
    return tok.encode_files(path, parallel=num_threads > 1)


APIS = {
    "encode": Api(Takes.BYTES, _encode, one_thread=True),
    "encode_batch": Api(Takes.BYTES, _encode_batch, _flat),
    "BytesSource": Api(Takes.BYTES, _encode_source, _flat),
    "encode_files": Api(Takes.PATH, _encode_files, _flat),
}
