"""tokie: `encode_bytes` has neither pattern nor specials and is omitted; `encode_files` drops its separator.

To keep the special ids, `encode_files` gets a separator that no text here contains.
"""

from collections.abc import Callable
from typing import Any

import tokie

from gristmill.bench.encoders import Api, Takes, flattened, keep_to_cpus
from gristmill.bench.encoders.vocabularies import VocabularyFiles

DISTRIBUTION = "tokie"
THREADS = "the CPUs that the process may use"
SLOW = False
NO_SEPARATOR = b"\0no separator\0"


def build(files: VocabularyFiles, num_threads: int) -> tokie.Tokenizer:
    """Load the tokenizer.json."""
    keep_to_cpus(num_threads)
    return tokie.Tokenizer.from_json(str(files.huggingface))


def short(tok: tokie.Tokenizer) -> Callable[[str], Any]:
    """`encode(text).ids`."""
    return lambda text: tok.encode(text, add_special_tokens=False).ids


def _encode(tok: tokie.Tokenizer, text: str, num_threads: int) -> Any:
    return tok.encode(text, add_special_tokens=False).ids


def _encode_batch(tok: tokie.Tokenizer, documents: list[str], num_threads: int) -> Any:
    return [encoding.ids for encoding in tok.encode_batch(documents, add_special_tokens=False)]


def _encode_files(tok: tokie.Tokenizer, path: str, num_threads: int) -> Any:
    return tok.encode_files([path], separator=NO_SEPARATOR)[0]


APIS = {
    "encode": Api(Takes.TEXT, _encode),
    "encode_batch, documents": Api(Takes.DOCUMENTS, _encode_batch, flattened),
    "encode_files": Api(Takes.PATH, _encode_files),
}
