"""Shard search: documents that contain a text or a sequence of ids, a bounded number of tokens per request.

A request searches from its cursor on until it has found enough, or until its time is over, and returns the next cursor.
The page sends the next request, or does not: a search through terabytes blocks nothing and ends when the page is
closed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gristmill.analysis.token_text import shortened
from gristmill.errors import UnknownTokenError
from gristmill.view.replies import Refusal
from gristmill.view.shard_folder import OpenSplit
from gristmill.view.token_texts import shown

__all__ = ["Found", "Searched", "parse_ids", "search_ids", "search_text"]

MAX_RESULTS = 20  # of one request
MAX_SECONDS = 0.3  # of one request
CHUNK_TOKENS = 1 << 18
CONTEXT_TOKENS = 24
CONTEXT_CHARACTERS = 70
MAX_QUERY_BYTES = 1_000
MAX_QUERY_IDS = 64


@dataclass(frozen=True)
class Found:
    """The first match in a document: which tokens of the document contain it, and the text around it."""

    number: int
    token: int
    num_tokens: int
    before: str
    match: str
    after: str


@dataclass(frozen=True)
class Searched:
    """Results of one request. `cursor` is where the next one continues; None at the end."""

    results: list[Found]
    cursor: int | None


class _Chunk(Protocol):
    def find(self, token: int) -> tuple[int, int] | None:
        """Return the first and the last token of the first match that begins at or after `token`."""


def search_text(split: OpenSplit, query: str, *, cursor: int, ignore_case: bool) -> Searched:
    """Return documents from token `cursor` on whose bytes contain `query`, wherever tokens begin and end.

    Special tokens are not text: "end" does not match the end of every document. A query that spells a special token out
    does match it.

    ignore_case: for the letters A to Z.
    """
    data = query.encode("utf-8", "replace")
    if not data:
        raise Refusal("Type a text to search for.")
    if len(data) > MAX_QUERY_BYTES:
        raise Refusal(f"The text to search for has {len(data):,} bytes. At most {MAX_QUERY_BYTES:,} are allowed.")
    tokenizer = split.tokenizer
    if tokenizer is None:
        raise Refusal(f"Text cannot be searched without a tokenizer: {split.why_no_tokenizer} Search for ids instead.")
    wanted = data.lower() if ignore_case else data
    specials = tokenizer.special_tokens
    separators = [] if any(special in query for special in specials) else list(specials.values())

    def chunk(ids: NDArray[Any]) -> _Chunk:
        try:
            text = tokenizer.decode_bytes(ids)
        except UnknownTokenError as error:
            raise Refusal(f"These ids are not of this tokenizer: {error}") from error
        return _Text(text.lower() if ignore_case else text, wanted, ids, split.token_lengths, separators)

    # Every token has at least one byte, so this many tokens contain any match.
    return _search(split, chunk, cursor, longest=len(data))


def search_ids(split: OpenSplit, query: str, *, cursor: int) -> Searched:
    """Return documents from token `cursor` on that contain the ids in `query`, such as "17 256", in this order."""
    wanted = parse_ids(query)
    return _search(split, lambda ids: _Ids(ids, wanted), cursor, longest=len(wanted))


def parse_ids(query: str) -> list[int]:
    """Return the ids in a text.

    >>> parse_ids("[17, 256]"), parse_ids("17 256")
    ([17, 256], [17, 256])
    """
    words = query.replace(",", " ").replace("[", " ").replace("]", " ").split()
    if not words or not all(word.isascii() and word.isdecimal() and len(word) <= 10 for word in words):
        raise Refusal(f"Type ids separated by spaces, such as 17 256; got {query[:60]!r}.")
    if len(words) > MAX_QUERY_IDS:
        raise Refusal(f"There are {len(words):,} ids to search for. At most {MAX_QUERY_IDS} are allowed.")
    return [int(word) for word in words]


def _search(split: OpenSplit, make_chunk: Any, cursor: int, *, longest: int) -> Searched:
    tokens, total = split.shards.tokens, split.shards.num_tokens
    deadline = time.monotonic() + MAX_SECONDS
    results: list[Found] = []
    position = min(cursor, total)
    while position < total and len(results) < MAX_RESULTS and (time.monotonic() < deadline or position == cursor):
        base, end = position, min(position + CHUNK_TOKENS, total)
        chunk = make_chunk(tokens.stretch(base, min(end + longest - 1, total)))
        while True:
            match = chunk.find(position - base)
            if match is None or base + match[0] >= end:
                position = max(position, end)
                break
            first, last = base + match[0], base + match[1]
            number = split.locate(first)
            span = split.span(number)
            # A match that continues in the next document is none; neither is any later one in this document.
            if split.why_parts is not None or last < span[1]:
                results.append(_found(split, number, span, first, last + 1))
            position = max(span[1], last + 1 if split.why_parts is not None else 0)
            if position >= end or len(results) >= MAX_RESULTS or time.monotonic() >= deadline:
                break
    return Searched(results, position if position < total else None)


class _Text:
    """Matches of bytes in a chunk of tokens. A match that overlaps a token of `separators` is none."""

    def __init__(
        self, text: bytes, wanted: bytes, ids: NDArray[Any], lengths: NDArray[np.int64], separators: list[int]
    ) -> None:
        self._text, self._wanted, self._ids, self._lengths = text, wanted, ids, lengths
        self._separators = separators
        self._ends: NDArray[np.int64] | None = None  # of each token, in bytes; most chunks have no match

    def find(self, token: int) -> tuple[int, int] | None:
        while True:
            begin = int(self._token_ends()[token - 1]) if token else 0
            place = self._text.find(self._wanted, begin)
            if place < 0:
                return None
            places = [place, place + len(self._wanted) - 1]
            first, last = np.searchsorted(self._token_ends(), places, "right").tolist()
            separating = [i for i in range(first, last + 1) if self._ids[i] in self._separators]
            if not separating:
                return first, last
            token = separating[-1] + 1

    def _token_ends(self) -> NDArray[np.int64]:
        if self._ends is None:
            self._ends = np.cumsum(self._lengths[self._ids])
        return self._ends


class _Ids:
    """Matches of a sequence of ids in a chunk of tokens."""

    def __init__(self, ids: NDArray[Any], wanted: list[int]) -> None:
        self._size = len(wanted)
        number = max(len(ids) - self._size + 1, 0)
        matches = np.ones(number, np.bool_)
        for i, id in enumerate(wanted):
            matches &= ids[i : i + number] == id
        self._places = np.flatnonzero(matches)

    def find(self, token: int) -> tuple[int, int] | None:
        i = int(np.searchsorted(self._places, token))
        if i == len(self._places):
            return None
        place = int(self._places[i])
        return place, place + self._size - 1


def _found(split: OpenSplit, number: int, span: tuple[int, int], first: int, end: int) -> Found:
    begin = max(span[0], first - CONTEXT_TOKENS)
    stop = min(max(span[1], end), end + CONTEXT_TOKENS)
    before, match, after = (
        _text(split, split.shards.tokens.stretch(*stretch)) for stretch in ((begin, first), (first, end), (end, stop))
    )
    return Found(
        number=number,
        token=first - span[0],
        num_tokens=end - first,
        before="…" * (begin > span[0] or len(before) > CONTEXT_CHARACTERS) + before[-CONTEXT_CHARACTERS:],
        match=shortened(match, 2 * CONTEXT_CHARACTERS),
        after=after[:CONTEXT_CHARACTERS] + "…" * (stop < span[1] or len(after) > CONTEXT_CHARACTERS),
    )


def _text(split: OpenSplit, ids: NDArray[Any]) -> str:
    """Return the text of ids on one line; the ids themselves if there is no text."""
    try:
        if split.tokenizer is not None:
            return shown(split.tokenizer.decode(ids).replace("\n", " ").replace("\t", " "))
    except UnknownTokenError:
        pass
    return " ".join(map(str, ids.tolist()))
