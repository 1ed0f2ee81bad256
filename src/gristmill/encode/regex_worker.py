"""The code of a worker process of `RegexWorkers`, which encodes texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gristmill.encode.native_encoder import native_encoder
from gristmill.encode.regex_encoder import RegexEncoder
from gristmill.pretokenize.worker import cut_within_time
from gristmill.tokenizer import Vocabulary


def serve(fields: tuple[Any, ...], regex: str) -> Callable[[list[bytes], tuple[int, ...]], tuple[bytes, bytes]]:
    """Return the function that answers requests: (texts, ids of allowed specials) -> (ids, number of ids per text)."""
    vocabulary = Vocabulary.unpack(*fields)
    encoder = RegexEncoder(native_encoder(vocabulary, None), regex, vocabulary, cut=cut_within_time)

    def answer_to(texts: list[bytes], allowed: tuple[int, ...]) -> tuple[bytes, bytes]:
        ids, lengths = encoder.encode_texts(texts, encoder.special_rule(allowed, ()))
        return ids.tobytes(), lengths.tobytes()

    return answer_to
