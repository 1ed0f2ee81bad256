"""StopSearch: finds stop strings in a text that arrives in parts, and holds back text that may belong to one."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.errors import OptionError

__all__ = ["StopSearch", "check_stop"]


def check_stop(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the stop strings as a tuple; `OptionError` for an empty string, which would end every text at its start.

    >>> check_stop("###"), check_stop(["a", "b"]), check_stop(None)
    (('###',), ('a', 'b'), ())
    """
    strings = () if stop is None else tuple(stop) if isinstance(stop, list | tuple) else (stop,)
    for string in strings:
        if not isinstance(string, str):
            raise OptionError(f"stop={string!r} is of type {type(string).__name__}. Pass a str or a list of str.")
        if not string:
            raise OptionError(
                "stop='' is empty and would end every text. Pass at least one character, or leave it out."
            )
    return strings


class StopSearch:
    """Finds the first stop string of a text that arrives in parts.

    The first stop string is the one that ends first; of several that end there, the longest. Text that could still
    become a stop string is held back.

    >>> search = StopSearch(["END"])
    >>> search.push("the E"), search.push("N"), search.push("T"), search.push("ENDing"), search.is_over
    ('the ', '', 'ENT', '', True)
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""
        self.is_over = False

    def push(self, text: str) -> str:
        """Return the text that is final with this part; after a stop string, nothing more."""
        if not self._stop or self.is_over:
            return "" if self.is_over else text
        text = self._held + text
        begins = [(begin + len(stop), begin) for stop in self._stop if (begin := text.find(stop)) >= 0]
        self.is_over = bool(begins)
        certain = min(begins)[1] if begins else len(text) - self._num_held(text)
        self._held = "" if begins else text[certain:]
        return text[:certain]

    def whole(self, text: str) -> str:
        """Return a complete text up to its first stop string."""
        return self.push(text) + self.finish()

    def finish(self) -> str:
        """Return the held-back text at the end of a text without a stop string."""
        rest, self._held = self._held, ""
        return rest

    def _num_held(self, text: str) -> int:
        """Return the length of the longest suffix of `text` that is a prefix of a stop string."""
        longest = min(len(text), max(map(len, self._stop)) - 1)
        return next((length for length in range(longest, 0, -1) if self._begins_with(text[-length:])), 0)

    def _begins_with(self, text: str) -> bool:
        return any(stop.startswith(text) for stop in self._stop)
