"""bpe-openai: its native tokenizer, because the class around it refuses texts of a million characters.

The native tokenizer has no specials, so the special id is appended to each document here, as in that class.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bpe_openai import _bindings

from gristmill.bench.encoders import Api, CannotLoad, Takes, documents, flattened
from gristmill.bench.encoders.vocabularies import SPECIAL, VocabularyFiles

DISTRIBUTION = "bpe-openai"
THREADS = "a pool of threads over documents"
SLOW = False


class _Tokenizer:
    def __init__(self, files: VocabularyFiles) -> None:
        self.native = _bindings.tokenizer_for_encoding(f"{files.name}_base")
        self.special_id = files.special_tokens[SPECIAL]

    def encode(self, document: str) -> list[int]:
        if not document.endswith(SPECIAL):
            return list(self.native.encode(document))
        return [*self.native.encode(document.removesuffix(SPECIAL)), self.special_id]


def build(files: VocabularyFiles, num_threads: int) -> _Tokenizer:
    """Return the vocabulary of the package."""
    if files.name != "cl100k":
        raise CannotLoad(f"has no {files.name} vocabulary and cannot read files")
    return _Tokenizer(files)


def short(tok: _Tokenizer) -> Callable[[str], Any]:
    """The native `encode`."""
    encode: Callable[[str], Any] = tok.native.encode
    return encode


def _encode(tok: _Tokenizer, text: str, num_threads: int) -> Any:
    return [id for document in documents(text) for id in tok.encode(document)]


def _encode_pool(tok: _Tokenizer, texts: list[str], num_threads: int) -> Any:
    with ThreadPoolExecutor(num_threads) as pool:
        return list(pool.map(tok.encode, texts))


APIS = {
    "encode": Api(Takes.TEXT, _encode, one_thread=True),
    "encode, pool over documents": Api(Takes.DOCUMENTS, _encode_pool, flattened),
}
