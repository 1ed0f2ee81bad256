"""Hugging Face tokenizers: without offsets (`encode_batch_fast`), which is its fastest form."""

from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer

from gristmill.bench.encoders import Api, Takes, flattened
from gristmill.bench.encoders.vocabularies import VocabularyFiles

DISTRIBUTION = "tokenizers"
THREADS = "`RAYON_NUM_THREADS` and `TOKENIZERS_PARALLELISM`"
SLOW = True


def build(files: VocabularyFiles, num_threads: int) -> Tokenizer:
    """Load the tokenizer.json."""
    return Tokenizer.from_file(str(files.huggingface))


def short(tok: Tokenizer) -> Callable[[str], Any]:
    """`encode(text).ids`."""
    return lambda text: tok.encode(text).ids


def _encode_text(tok: Tokenizer, text: str, num_threads: int) -> Any:
    return tok.encode_batch_fast([text])[0].ids


def _encode_documents(tok: Tokenizer, documents: list[str], num_threads: int) -> Any:
    return [encoding.ids for encoding in tok.encode_batch_fast(documents)]


APIS = {
    "encode_batch_fast": Api(Takes.TEXT, _encode_text, one_thread=True),
    "encode_batch_fast, documents": Api(Takes.DOCUMENTS, _encode_documents, flattened),
}
