"""`TokenizerParts`: the content of a tokenizer, which every file format reads and writes, and its fingerprint."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gristmill.arguments import check_tie_break
from gristmill.errors import OptionError
from gristmill.pretokenize import Pattern
from gristmill.tokenizer.vocabulary import Vocabulary

# The assumed rule of a tokenizer file that does not record one.
ASSUMED_TIE_BREAK = "greatest-bytes"


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """The tokens with their ids, the pattern, and the rule that the merges were learned with."""

    vocabulary: Vocabulary
    pattern: Pattern
    tie_break: str
    # False if the rule is assumed (`ASSUMED_TIE_BREAK`), because files of other tools do not record it.
    states_tie_break: bool = field(default=True, compare=False)

    def with_tie_break(self, tie_break: str | None) -> TokenizerParts:
        """Return the same parts with the rule `tie_break`. Raises OptionError if another rule is recorded."""
        if tie_break is None:
            return self
        if self.states_tie_break and check_tie_break(tie_break) != self.tie_break:
            raise OptionError(
                f"tie_break={tie_break!r}, but the file records tie_break={self.tie_break!r}. "
                f"Leave tie_break= out. To extend the tokenizer with another rule, pass tie_break= to extended()."
            )
        return replace(self, tie_break=check_tie_break(tie_break), states_tie_break=True)

    def fingerprint(self) -> str:
        """Return the SHA-256, in hexadecimal, of everything that affects the ids of a text, and of nothing else.

        The serialisation must not change, because shards and checkpoints compare fingerprints. Each section is its
        length (64 bits) followed by its bytes. All integers are little-endian.
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
