"""tiktoken, the reference for ids. One text has one thread; `encode_batch` has a thread pool for documents."""

from collections.abc import Callable
from typing import Any

import tiktoken
from tiktoken_ext.openai_public import r50k_pat_str

from gristmill.bench.encoders import Api, CannotLoad, Takes, flattened
from gristmill.bench.encoders.vocabularies import VocabularyFiles

DISTRIBUTION = "tiktoken"
THREADS = "`encode_batch(num_threads=)`"
SLOW = False


def build(files: VocabularyFiles, num_threads: int) -> tiktoken.Encoding:
    """Build the encoding from the ranks and the published pattern, because `get_encoding` would download."""
    return tiktoken.Encoding(
        files.name,
        pat_str=_pattern(files.pattern),
        mergeable_ranks=files.ranks(),
        special_tokens=files.special_tokens,
    )


def _pattern(name: str) -> str:
    if name == "gpt2":
        return str(r50k_pat_str)
    try:
        from bpe_openai import registry
    except ImportError as error:
        raise CannotLoad("its cl100k pattern is taken from bpe-openai, which is not installed") from error
    return str(registry.cl100k_base()["pat_str"])


def short(tok: tiktoken.Encoding) -> Callable[[str], Any]:
    """`encode`, with the check for specials in user text."""
    encode: Callable[[str], Any] = tok.encode
    return encode


def _encode(tok: tiktoken.Encoding, text: str, num_threads: int) -> Any:
    return tok.encode_to_numpy(text, allowed_special="all")


def _encode_batch(tok: tiktoken.Encoding, documents: list[str], num_threads: int) -> Any:
    return tok.encode_batch(documents, num_threads=num_threads, allowed_special="all")


APIS = {
    "encode_to_numpy": Api(Takes.TEXT, _encode, one_thread=True),
    "encode_batch, documents": Api(Takes.DOCUMENTS, _encode_batch, flattened),
}
