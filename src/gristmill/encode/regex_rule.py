"""Special tokens for patterns without a native matcher: which become ids, and which are an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gristmill import _core


class RegexRule:
    """Which special tokens become ids, and which are an error."""

    def __init__(self, id_of: dict[bytes, int], allowed: Sequence[int], disallowed: Sequence[int]) -> None:
        self.id_of = id_of
        self.allowed_ids = tuple(allowed)
        self.allowed = _longest_first(id_of, set(allowed))
        self.disallowed = _longest_first(id_of, set(disallowed))
        self.longest = max(map(len, id_of), default=1)

    def check(self, text: bytes, index: int = 0, *, begin: int = 0) -> None:
        """Raise for a disallowed special token at or after byte `begin` in text number `index` of a batch."""
        if match := self.disallowed.search(text, begin):
            raise _core.ForgedSpecial(index, match.start(), self.id_of[match.group()])

    def crosses(self, text: bytes, place: int) -> bool:
        """Whether a disallowed special token crosses `place`."""
        begins = range(max(0, place - self.longest + 1), place)
        return any((match := self.disallowed.match(text, begin)) and match.end() > place for begin in begins)

    def parts(self, text: bytes, num_bytes: int) -> Iterator[bytes]:
        """Yield the text in parts that end after an allowed special. All but the last have `num_bytes` or more."""
        begin = 0
        for match in self.allowed.finditer(text):
            if match.end() - begin >= num_bytes:
                yield text[begin : match.end()]
                begin = match.end()
        yield text[begin:]

    def split(self, text: bytes) -> Iterator[tuple[bytes, list[int]]]:
        """Yield (document, ids) for each document; ids has the id of the special token after it, if there is one."""
        begin = 0
        for match in self.allowed.finditer(text):
            yield text[begin : match.start()], [self.id_of[match.group()]]
            begin = match.end()
        yield text[begin:], []


def _longest_first(id_of: dict[bytes, int], ids: set[int]) -> re.Pattern[bytes]:
    specials = sorted((special for special, id in id_of.items() if id in ids), key=len, reverse=True)
    return re.compile(b"|".join(map(re.escape, specials)) or b"(?!)")  # (?!) matches nowhere
