"""wordchipper: takes `str` and the vocabularies built into it."""

from collections.abc import Callable
from typing import Any

from wordchipper import Tokenizer, TokenizerOptions

from gristmill.bench.encoders import Api, CannotLoad, Takes, flattened
from gristmill.bench.encoders.vocabularies import VocabularyFiles

DISTRIBUTION = "wordchipper"
THREADS = "`TokenizerOptions.set_parallel` and `RAYON_NUM_THREADS`"
SLOW = False
MODELS = {"gpt2": "openai:gpt2", "cl100k": "openai:cl100k_base"}


def build(files: VocabularyFiles, num_threads: int) -> Tokenizer:
    """Return the built-in vocabulary."""
    if files.name not in MODELS:
        raise CannotLoad(f"has no {files.name} vocabulary and cannot read files")
    options = TokenizerOptions.default()
    options.set_parallel(num_threads > 1)
    tok = Tokenizer.from_pretrained(MODELS[files.name], options)
    if tok.vocab_size <= 256:
        raise CannotLoad(f"its built-in {files.name} vocabulary has {tok.vocab_size} tokens in this build: bytes alone")
    return tok


def short(tok: Tokenizer) -> Callable[[str], Any]:
    """`encode`."""
    encode: Callable[[str], Any] = tok.encode
    return encode


def _encode(tok: Tokenizer, text: str, num_threads: int) -> Any:
    return tok.encode(text)


def _encode_batch(tok: Tokenizer, documents: list[str], num_threads: int) -> Any:
    return tok.encode_batch(documents)


APIS = {
    "encode": Api(Takes.TEXT, _encode, one_thread=True),
    "encode_batch, documents": Api(Takes.DOCUMENTS, _encode_batch, flattened),
}
