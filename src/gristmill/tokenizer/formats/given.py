"""The pattern and special tokens that a caller passes for a tokenizer file that does not store them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gristmill.arguments import check_special_tokens
from gristmill.errors import OptionError
from gristmill.pretokenize.patterns import Pattern, resolve_pattern

SpecialTokens = Mapping[str, int] | Iterable[str]


@dataclass(frozen=True, slots=True)
class Given:
    """The pattern and special tokens from the caller. An id of None is taken from the file, or is the next free id."""

    pattern: Pattern | None = None
    special_tokens: dict[str, int | None] | None = None

    @classmethod
    def from_options(cls, pattern: str | None, special_tokens: SpecialTokens | None) -> Given:
        """Return the validated arguments."""
        specials: dict[str, int | None] | None = None
        if special_tokens is not None:
            names = check_special_tokens(
                list(special_tokens) if isinstance(special_tokens, Mapping) else special_tokens
            )
            specials = dict(special_tokens) if isinstance(special_tokens, Mapping) else dict.fromkeys(names)
        return cls(None if pattern is None else resolve_pattern(pattern), specials)

    def agree_with(self, pattern: Pattern, special_tokens: Mapping[str, int]) -> None:
        """Raise if the caller passed something other than the file stores."""
        if self.pattern is not None and self.pattern != pattern:
            raise OptionError(
                f"the file stores pattern {str(pattern)!r}, which differs from pattern={str(self.pattern)!r}. "
                f"Leave pattern= out."
            )
        if self.special_tokens is None:
            return
        differs = set(self.special_tokens) != set(special_tokens) or any(
            id is not None and id != special_tokens[special] for special, id in self.special_tokens.items()
        )
        if differs:
            raise OptionError(
                f"the file stores special tokens {_shown(special_tokens)}, which differ from "
                f"special_tokens={_shown(self.special_tokens)}. Leave special_tokens= out."
            )

    def numbered(self, first_free: int, held: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the special tokens with ids: from the caller, otherwise from `held`, otherwise the next free id."""
        numbered: dict[str, int] = {}
        for special, id in (self.special_tokens or {}).items():
            known = (held or {}).get(special) if id is None else id
            if known is None:
                known = first_free
            numbered[special] = known
            if type(known) is int:
                first_free = max(first_free, known + 1)
        return numbered


def _shown(special_tokens: Mapping[str, int | None]) -> str:
    shown = [repr(special) if id is None else f"{special!r}: {id}" for special, id in special_tokens.items()]
    return "{" + ", ".join(shown[:4]) + ", …" * (len(shown) > 4) + "}"
