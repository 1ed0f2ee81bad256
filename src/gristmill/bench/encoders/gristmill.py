"""gristmill, through the public Python methods; the arrays have the smallest dtype that fits the ids."""

from collections.abc import Callable
from typing import Any, cast

from gristmill import _core
from gristmill.bench.encoders import Api, Takes
from gristmill.bench.encoders.vocabularies import VocabularyFiles
from gristmill.encode.tokenizer import Tokenizer

DISTRIBUTION = "gristmill"
THREADS = "`num_threads=`"
SLOW = False


def build(files: VocabularyFiles, num_threads: int) -> Tokenizer:
    """Load the ranks."""
    return Tokenizer.load(files.tiktoken, format="tiktoken", pattern=files.pattern, special_tokens=files.special_tokens)


def cache_figures(tok: Tokenizer) -> dict[str, int]:
    """Return the statistics of the piece caches."""
    return dict(cast(_core.Encoder, tok._encoder).cache_stats)


def short(tok: Tokenizer) -> Callable[[str], Any]:
    """`encode`, with the check for specials in user text."""
    return tok.encode


def _encode_array(tok: Tokenizer, text: bytes, num_threads: int) -> Any:
    return tok.encode_array(text, allowed_special="all", num_threads=num_threads)


def _encode_file(tok: Tokenizer, path: str, num_threads: int) -> Any:
    return tok.encode_file(path, allowed_special="all", num_threads=num_threads)


APIS = {
    "encode_array": Api(Takes.BYTES, _encode_array),
    "encode_file": Api(Takes.PATH, _encode_file),
}
