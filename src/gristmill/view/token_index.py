"""Token index: search, classes and merge trees of one vocabulary, fast enough to answer while someone types."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gristmill.analysis.strangeness import strangest_tokens
from gristmill.analysis.texts import sample_text
from gristmill.analysis.usage import count_characters
from gristmill.analysis.vocabulary import TokenClasses, token_classes, token_lengths
from gristmill.encode.tokenizer import Tokenizer
from gristmill.pretokenize.cutting import pretokenize
from gristmill.view.replies import Refusal

__all__ = ["By", "Class", "TokenIndex", "encoding"]

By = Literal["contains", "begins", "bytes", "id"]
Class = Literal["all", "longest", "strangest", "whitespace", "partial", "special", "not_itself", "used", "unused"]
Ids = NDArray[np.int64]

SHOWN_BYTES = 256  # of a long token in a list
MAX_TREE_TOKENS = 400  # distinct tokens in a merge tree
MAX_BUILT = 50  # tokens that are built from a token


class TokenIndex:
    """What the page asks about one tokenizer. Each part is computed when it is first needed, then kept."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.lengths = token_lengths(tokenizer)
        self._lock = threading.RLock()

    @cached_property
    def tokens(self) -> dict[int, bytes]:
        """The bytes of every id, special tokens included, in order of id."""
        return self.tokenizer.vocab

    @cached_property
    def special_ids(self) -> Ids:
        """The ids of the special tokens, in order."""
        return np.sort(np.array(list(self.tokenizer.special_tokens.values()), np.int64))

    @cached_property
    def ranks(self) -> Ids:
        """For each id, the rank of the first merge that creates it, or -1."""
        made = self.tokenizer.merged_ids.astype(np.int64)
        ranks = np.full(self.tokenizer.vocab_size, -1)
        ranks[made[::-1]] = np.arange(len(made))[::-1]
        return ranks

    @cached_property
    def _ids(self) -> Ids:
        return np.fromiter(self.tokens, np.int64, len(self.tokens))

    @cached_property
    def _lowercase(self) -> list[str]:
        return [token.decode("utf-8", "surrogateescape").lower() for token in self.tokens.values()]

    @cached_property
    def _classes(self) -> TokenClasses:
        return token_classes(self.tokenizer)

    @cached_property
    def _strangest(self) -> Ids:
        return strangest_tokens(self.tokenizer)

    @cached_property
    def _not_itself(self) -> Ids:
        ids = self._classes.ordinary
        encoded = self.tokenizer.encode_batch([self.tokens[int(id)] for id in ids])
        return np.array([id for id, own in zip(ids.tolist(), encoded, strict=True) if list(own) != [id]], np.int64)

    @cached_property
    def sample_counts(self) -> Ids:
        """How often the sample stories use each id: the text that reports measure on unless another one is given."""
        return self.counts(sample_text().data, specials=False)

    def counts(self, text: bytes, *, specials: bool) -> Ids:
        """Return how often `text` uses each id."""
        ids = self.tokenizer.encode_array(text, allowed_special="all" if specials else ())
        return np.bincount(ids, minlength=self.tokenizer.vocab_size)

    def search(
        self, query: str, *, by: By, ignore_case: bool, of_class: Class, counts: Callable[[], Ids]
    ) -> tuple[Ids, Ids | None]:
        """Return the ids of the matching tokens, in the order of the class, and the counts of all ids if it needs them.

        counts: How often each id is used, for the classes used and unused.
        """
        used = counts() if of_class in ("used", "unused") else None
        with self._lock:  # two requests must not both compute a class of a large vocabulary
            ids = self._in_class(of_class, used)
            if query:
                matches = np.zeros(self.tokenizer.vocab_size, bool)
                matches[self._matching(query, by, ignore_case)] = True
                ids = ids[matches[ids]]
            return ids, used

    def _in_class(self, of_class: Class, used: Ids | None) -> Ids:
        if used is not None:
            if of_class == "unused":
                return np.compress(used[self._classes.ordinary] == 0, self._classes.ordinary)
            return np.argsort(-used, kind="stable")[: np.count_nonzero(used)].astype(np.int64)
        match of_class:
            case "longest":
                return self._classes.longest
            case "strangest":
                return self._strangest
            case "whitespace":
                return self._classes.whitespace
            case "partial":
                return self._classes.partial_utf8
            case "special":
                return self.special_ids
            case "not_itself":
                return self._not_itself
        return self._ids

    def _matching(self, query: str, by: By, ignore_case: bool) -> list[int]:
        if by == "id":
            if not (query.strip().isascii() and query.strip().isdecimal() and len(query.strip()) <= 9):
                raise Refusal(f"{query.strip()[:20]!r} is not an id. Enter a number.")
            return [id for id in [int(query)] if id in self.tokens]
        if by == "bytes":
            needle = _from_hex(query)
        elif ignore_case:
            folded = query.lower()
            if by == "begins":
                return [id for id, text in zip(self.tokens, self._lowercase, strict=True) if text.startswith(folded)]
            return [id for id, text in zip(self.tokens, self._lowercase, strict=True) if folded in text]
        else:
            needle = query.encode()
        if by == "begins":
            return [id for id, token in self.tokens.items() if token.startswith(needle)]
        return [id for id, token in self.tokens.items() if needle in token]

    def row(self, id: int) -> dict[str, Any]:
        """Return a token as the page shows it in lists: at most `SHOWN_BYTES` bytes, in hexadecimal."""
        rank = int(self.ranks[id])
        return {
            "id": id,
            "hex": self.tokens[id][:SHOWN_BYTES].hex(),
            "length": len(self.tokens[id]),
            "rank": rank if rank >= 0 else None,
            "special": bool(np.isin(id, self.special_ids)),
        }

    def tree(self, id: int) -> dict[str, Any]:
        """Return how the token was learned: all tokens in its merge tree, each once, and the tokens built from it.

        Raises:
            Refusal: No token has this id.
        """
        if id not in self.tokens:
            last = self.tokenizer.vocab_size - 1
            raise Refusal(f"This tokenizer has no token with id {id}. The last id is {last}.", 404)
        parts: dict[int, list[int]] = {}
        waiting = deque([id])
        seen = {id}
        while waiting and len(parts) < MAX_TREE_TOKENS:
            each = waiting.popleft()  # breadth first: a tree that is cut keeps the merges at the top
            rank = int(self.ranks[each])
            parts[each] = self.tokenizer.merge_ids[rank].tolist() if rank >= 0 else []
            new = [part for part in dict.fromkeys(parts[each]) if part not in seen]
            seen.update(new)
            waiting.extend(new)
        merges = self.tokenizer.merge_ids
        built = np.flatnonzero((merges[:, 0] == id) | (merges[:, 1] == id))
        made = self.tokenizer.merged_ids
        return {
            **self.row(id),
            "kind": self._kind(id),
            "num_merges": len(merges),
            "num_creating": int(np.count_nonzero(made == id)),
            "tokens": [{**self.row(each), "parts": parts.get(each, [])} for each in seen],
            "cut": bool(waiting),
            "num_built": len(built),
            "built": [self.row(int(made[rank])) | {"rank": int(rank)} for rank in built[:MAX_BUILT]],
            "encodes_to": self.tokenizer.encode_array(self.tokens[id])[:50].tolist(),
        }

    def _kind(self, id: int) -> str:
        if np.isin(id, self.special_ids):
            return "special"
        if self.ranks[id] >= 0:
            return "merge"
        return "byte" if len(self.tokens[id]) == 1 else "whole"


def _from_hex(query: str) -> bytes:
    digits = "".join(query.replace("0x", " ").replace("\\x", " ").split())
    try:
        return bytes.fromhex(digits)
    except ValueError:
        message = f"{query[:40]!r} is not a sequence of bytes in hexadecimal. Enter pairs of digits, such as e4 bd a0."
        raise Refusal(message) from None


def encoding(index: TokenIndex, text: bytes, *, specials: bool, first: int, max_tokens: int) -> dict[str, Any]:
    """Return the figures of a text, and the tokens from number `first` on as the page draws them.

    The page has the text, so ids and lengths are enough. Positions in `pieces` and `specials` count from `first`.
    """
    tokenizer = index.tokenizer
    ids = tokenizer.encode_array(text, allowed_special="all" if specials else ())
    ends = np.cumsum(index.lengths[ids])
    allowed = list(tokenizer.special_tokens) if specials else []
    pieces = pretokenize(text, pattern=tokenizer.pattern, special_tokens=allowed)
    piece_ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
    piece_starts = np.concatenate([[0], np.searchsorted(ends, piece_ends[:-1]) + 1]) if len(pieces) else piece_ends
    first = min(first, max(0, len(ids) - 1)) // max_tokens * max_tokens
    shown = ids[first : first + max_tokens]
    inside = piece_starts[(piece_starts >= first) & (piece_starts < first + len(shown))]
    return {
        "num_tokens": len(ids),
        "num_bytes": len(text),
        "num_characters": count_characters(text),
        "num_pieces": len(pieces),
        "num_split": _count_split_characters(text, ends),
        "first": first,
        "begin": int(ends[first - 1]) if first else 0,
        "ids": shown.tolist(),
        "lengths": index.lengths[shown].tolist(),
        "pieces": (inside - first).tolist(),
        "specials": np.flatnonzero(np.isin(shown, index.special_ids)).tolist(),
    }


def _count_split_characters(text: bytes, ends: Ids) -> int:
    """Return the number of characters that a token boundary cuts."""
    if text.isascii():
        return 0
    begins = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
    cuts = ends[:-1][~begins[ends[:-1]]]
    return len(np.unique(np.cumsum(begins)[cuts]))
