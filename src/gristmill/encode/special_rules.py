"""Which special tokens in a text become ids, for `encode`, `encode_file` and `encode_corpus`.

A special token named by `allowed_special` becomes its id. One named by `disallowed_special` is an error. All others are
plain text. Where allowed special tokens overlap, the leftmost wins, then the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, Generic, Literal, TypeVar

from gristmill.errors import SpecialTokenError

Specials = Literal["all"] | Collection[str]
Rule = TypeVar("Rule")

NONE: Final[tuple[str, ...]] = ()
ALL: Final = "all"

MAX_RULES = 64


class SpecialRules(Generic[Rule]):
    """Cache of rules by their arguments, because building a rule costs more than encoding a line.

    `build(allowed, disallowed)` returns the rule for these ids.
    """

    def __init__(self, special_tokens: dict[str, int], build: Callable[[list[int], list[int]], Rule]) -> None:
        self._id_of = special_tokens
        self._build = build
        self._rules: dict[tuple[object, object], Rule] = {}

    def rule(self, allowed_special: Specials = NONE, disallowed_special: Specials = NONE) -> Rule:
        """Return the rule for these arguments of `encode`. Raises SpecialTokenError for an unknown special token."""
        key = self._key("allowed_special", allowed_special), self._key("disallowed_special", disallowed_special)
        rule = self._rules.get(key)
        if rule is None:
            allowed = self._ids("allowed_special", key[0])
            disallowed = self._ids("disallowed_special", key[1])
            if key[1] == ALL:
                disallowed -= allowed
            if len(self._rules) >= MAX_RULES:
                self._rules.clear()
            rule = self._rules[key] = self._build(sorted(allowed), sorted(disallowed))
        return rule

    def _key(self, argument: str, specials: object) -> str | frozenset[str]:
        if isinstance(specials, str):
            if specials != ALL:
                example = f", {{{specials!r}}}" if specials in self._id_of else " of special tokens, () for none"
                raise SpecialTokenError(f"{argument}={specials!r} is a str. Pass a set{example}, or 'all'.")
            return ALL
        try:
            if isinstance(specials, Iterable):
                return frozenset(specials)
        except TypeError:  # an entry is not hashable
            pass
        raise SpecialTokenError(
            f"{argument}={specials!r:.80} is not a collection of special tokens. Pass a set, or 'all'."
        )

    def _ids(self, argument: str, specials: str | frozenset[str]) -> set[int]:
        if isinstance(specials, str):
            return set(self._id_of.values())
        for special in specials:
            if special not in self._id_of:
                raise SpecialTokenError(
                    f"{argument}: {special!r} is not a special token of this tokenizer. It has {self._known()}."
                )
        return {self._id_of[special] for special in specials}

    def _known(self) -> str:
        first = [repr(special) for special, _ in zip(self._id_of, range(20), strict=False)]
        more = len(self._id_of) - len(first)
        return ", ".join(first) + f" and {more:,} more" * (more > 0) or "none"


def forged_special(special: str, position: int, where: str) -> SpecialTokenError:
    """Return the error for a disallowed special token in the text called `where`."""
    return SpecialTokenError(
        f"{where} contains the special token {special!r} at byte {position}, which is not allowed. "
        f"Pass allowed_special={{{special!r}}} to encode it as its id, "
        f"or disallowed_special=() to encode it as plain text."
    )
