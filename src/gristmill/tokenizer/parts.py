"""`TokenizerParts`: what a tokenizer is made of, what every file format reads and writes, and its fingerprint."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gristmill.arguments import check_tie_break
from gristmill.errors import OptionError
from gristmill.pretokenize import Pattern
from gristmill.tokenizer.vocabulary import Vocabulary

# The rule of a tokenizer that records none.
ASSUMED_TIE_BREAK = "greatest-bytes"


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """The tokens with their ids, the pattern, and the rule the merges were learned under."""

    vocabulary: Vocabulary
    pattern: Pattern
    tie_break: str
    # False where the rule is `ASSUMED_TIE_BREAK`, because the file of another tool does not record it.
    states_tie_break: bool = field(default=True, compare=False)

    def with_tie_break(self, tie_break: str | None) -> TokenizerParts:
        """The same with the rule that the caller names; `OptionError` where another one is known."""
        if tie_break is None:
            return self
        if self.states_tie_break and check_tie_break(tie_break) != self.tie_break:
            raise OptionError(
                f"the file records tie_break={self.tie_break!r}; it cannot be loaded as {tie_break!r}. "
                f"Leave tie_break= out. To extend it under another rule, pass tie_break= to extended()."
            )
        return replace(self, tie_break=check_tie_break(tie_break), states_tie_break=True)

    def fingerprint(self) -> str:
        """The SHA-256 of all that decides which ids a text has, and of nothing else, in hexadecimal.

        Of a serialisation that will not change, because shards and checkpoints are compared by it: each section is its
        length (64 bits) and its bytes; all integers are little-endian.
        """
        vocabulary = self.vocabulary
        sections = [
            b"gristmill-fingerprint-1",
            vocabulary.byte_ids.astype("<u4").tobytes(),
            vocabulary.merges.astype("<u4").tobytes(),
            _pack(vocabulary.other_tokens.items()),
            _pack((id, special.encode()) for special, id in vocabulary.special_tokens.items()),
            bytes([vocabulary.whole_pieces]),
            self.pattern.regex.encode(),
        ]
        digest = hashlib.sha256()
        for section in sections:
            digest.update(struct.pack("<Q", len(section)))
            digest.update(section)
        return digest.hexdigest()


def _pack(tokens: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join(struct.pack("<IQ", id, len(token)) + token for id, token in sorted(tokens))
