"""What every format has in common: the parts a tokenizer is made of."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.merges import MergeIds
from gristmill.patterns import Pattern


@dataclass(frozen=True, slots=True, eq=False)
class TokenizerParts:
    """Merges as ids, the pattern, the specials in the order of their ids, the rule the merges were learned under."""

    merges: MergeIds
    pattern: Pattern
    special_tokens: tuple[str, ...]
    tie_break: str
