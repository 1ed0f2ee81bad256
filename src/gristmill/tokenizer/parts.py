"""What every format has in common: the parts a tokenizer is made of."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.pretokenize.patterns import Pattern
from gristmill.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """The tokens with their ids, the pattern, and the rule the merges were learned under."""

    vocabulary: Vocabulary
    pattern: Pattern
    tie_break: str
