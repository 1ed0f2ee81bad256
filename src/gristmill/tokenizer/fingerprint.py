"""A number for all that decides which ids a text has, and for nothing else."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

from gristmill.pretokenize.patterns import Pattern
from gristmill.tokenizer.vocabulary import Vocabulary


def fingerprint_of(vocabulary: Vocabulary, pattern: Pattern) -> str:
    """SHA-256, in hexadecimal, of a serialisation that will not change: shards and checkpoints are told apart by it.

    Each section is its length (64 bits) and its bytes; all integers are little-endian.
    """
    sections = [
        b"gristmill-fingerprint-1",
        vocabulary.byte_ids.astype("<u4").tobytes(),
        vocabulary.merges.astype("<u4").tobytes(),
        _pack(vocabulary.other_tokens.items()),
        _pack((id, special.encode()) for special, id in vocabulary.special_tokens.items()),
        bytes([vocabulary.whole_pieces]),
        pattern.regex.encode(),
    ]
    digest = hashlib.sha256()
    for section in sections:
        digest.update(struct.pack("<Q", len(section)))
        digest.update(section)
    return digest.hexdigest()


def _pack(tokens: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join(struct.pack("<IQ", id, len(token)) + token for id, token in sorted(tokens))
