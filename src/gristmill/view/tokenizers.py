"""Tokenizers: the room that shows tokens of a text, merge trees and vocabularies."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated, Any

import msgspec
from anyio.to_thread import run_sync
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gristmill.analysis.named_tokenizers import find_tokenizer
from gristmill.errors import GristmillError
from gristmill.view.artefacts import Artefacts, TokenizerArtefact
from gristmill.view.replies import Refusal, pick, read, reply
from gristmill.view.token_index import By, Class, TokenIndex, encoding
from gristmill.view.tokenizer_words import CLASSES, PATTERNS, examples

__all__ = ["routes"]

# JSON needs at most 6 bytes for a character, so the longest text fits into the largest request.
MAX_CHARACTERS = 600_000
MAX_TOKENS = 2_000  # drawn at once for one tokenizer
MAX_SIDE_BY_SIDE = 8
MAX_SPECIALS = 200  # listed with the facts; the vocabulary lists all of them
ROWS_PER_PAGE = 25

Text = Annotated[str, Meta(max_length=MAX_CHARACTERS)]
Number = Annotated[int, Meta(ge=0, le=1 << 31)]


class Shown(msgspec.Struct, forbid_unknown_fields=True):
    """A tokenizer on the page, and the number of the first token that it shows."""

    tokenizer: Number
    first: Number = 0


class EncodeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A text for several tokenizers. `specials`: special tokens in the text become their ids."""

    text: Text
    shown: Annotated[list[Shown], Meta(min_length=1, max_length=MAX_SIDE_BY_SIDE)]
    specials: bool = False


class VocabularyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A search. The classes used and unused refer to `text`, or to the sample stories if it is None."""

    query: Annotated[str, Meta(max_length=1_000)] = ""
    by: By = "contains"
    ignore_case: bool = False
    of_class: Class = "all"
    page: Number = 0
    text: Text | None = None
    specials: bool = False


class _Kept:
    """A tokenizer that is loaded again when its file changes."""

    def __init__(self, artefact: TokenizerArtefact) -> None:
        self.name, self._path, self._pattern = artefact.name, artefact.path, artefact.pattern
        self._tokenizer = artefact.tokenizer
        self._index: TokenIndex | None = None
        self._stamp = _stamp(artefact.path)
        self._is_published = not self._stamp  # a published name: no file can change
        self._lock = threading.Lock()
        self.version = 0
        self.note = ""

    def index(self) -> TokenIndex:
        """Return the index of the tokenizer as it is now, or as it was before its file was removed or damaged."""
        stamp = () if self._is_published else _stamp(self._path)
        with self._lock:
            if stamp != self._stamp:
                self._stamp = stamp
                self._reload(exists=bool(stamp))
            if self._index is None:
                self._index = TokenIndex(self._tokenizer)
            return self._index

    def _reload(self, *, exists: bool) -> None:
        if not exists:
            self.note = f"{self.name} no longer exists. The page shows it as it was loaded before."
            return
        try:
            self._tokenizer = find_tokenizer(self._path, pattern=self._pattern)
        except (GristmillError, OSError) as error:
            self.note = f"{self.name} has changed and cannot be read ({error}). The page shows it as it was before."
            return
        self._index, self.note = None, ""
        self.version += 1


def _stamp(path: Path) -> tuple[tuple[int, int, int], ...]:
    """Return values that change with the file, or with the files of a folder. Empty if the path does not exist."""
    try:
        files = sorted(os.scandir(path), key=lambda file: file.name)[:50] if path.is_dir() else [path]
        found = [file.stat() for file in files]
    except OSError:
        return ()
    return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in found)


def routes(artefacts: Artefacts) -> list[BaseRoute]:
    """Return the routes of the room."""
    kept = tuple(map(_Kept, artefacts.tokenizers))

    def at(number: str) -> _Kept:
        return pick(kept, number, "tokenizer")

    def facts(_: Request) -> Response:
        limits = {"max_characters": MAX_CHARACTERS, "max_tokens": MAX_TOKENS, "max_side_by_side": MAX_SIDE_BY_SIDE}
        specials = [special for each in kept for special in each.index().tokenizer.special_tokens]
        classes = [(name, *words) for name, words in CLASSES.items()]
        texts = {"classes": classes, "examples": examples(specials)}
        return reply({**limits, **texts, "tokenizers": [_facts(each) for each in kept]})

    async def encode(request: Request) -> Response:
        asked = await read(request, EncodeRequest)
        return await run_sync(_encode, asked, [at(str(shown.tokenizer)) for shown in asked.shown])

    def token(request: Request) -> Response:
        id = request.path_params["id"]
        if not id.isascii() or not id.isdecimal() or len(id) > 9:
            raise Refusal(f"{id[:20]!r} is not an id.", 404)
        return reply(at(request.path_params["number"]).index().tree(int(id)))

    async def vocabulary(request: Request) -> Response:
        asked = await read(request, VocabularyRequest)
        return await run_sync(_search, asked, at(request.path_params["number"]))

    return [
        Route("/api/tokenizers", facts),
        Route("/api/tokenizers/encode", encode, methods=["POST"]),
        Route("/api/tokenizers/{number}/tokens/{id}", token),
        Route("/api/tokenizers/{number}/vocabulary", vocabulary, methods=["POST"]),
    ]


def _facts(kept: _Kept) -> dict[str, Any]:
    tokenizer = kept.index().tokenizer
    specials = tokenizer.special_tokens
    pattern = tokenizer.parts.pattern
    return {
        "name": kept.name,
        "version": kept.version,
        "note": kept.note,
        "vocab_size": tokenizer.vocab_size,
        "num_tokens": len(tokenizer),
        "num_merges": len(tokenizer.merge_ids),
        "pattern": pattern.name,
        "pattern_words": PATTERNS.get(pattern.name or "", ""),
        "regex": pattern.regex,
        "tie_break": tokenizer.tie_break,
        "states_tie_break": tokenizer.parts.states_tie_break,
        "fingerprint": tokenizer.fingerprint,
        "num_specials": len(specials),
        "specials": list(specials.items())[:MAX_SPECIALS],
    }


def _encode(asked: EncodeRequest, kept: list[_Kept]) -> Response:
    text = _as_bytes(asked.text)
    encoded = [
        encoding(each.index(), text, specials=asked.specials, first=shown.first, max_tokens=MAX_TOKENS)
        | {"tokenizer": shown.tokenizer, "version": each.version, "note": each.note}
        for each, shown in zip(kept, asked.shown, strict=True)
    ]
    return reply({"encoded": encoded})


def _search(asked: VocabularyRequest, kept: _Kept) -> Response:
    index = kept.index()

    def counts() -> Any:
        if asked.text is None:
            return index.sample_counts
        return index.counts(_as_bytes(asked.text), specials=asked.specials)

    ids, used = index.search(
        asked.query, by=asked.by, ignore_case=asked.ignore_case, of_class=asked.of_class, counts=counts
    )
    last = max(0, -(-len(ids) // ROWS_PER_PAGE) - 1)
    page = min(asked.page, last)
    shown = ids[page * ROWS_PER_PAGE : (page + 1) * ROWS_PER_PAGE].tolist()
    rows = [index.row(id) | ({} if used is None else {"count": int(used[id])}) for id in shown]
    return reply({"total": len(ids), "page": page, "last_page": last, "first": page * ROWS_PER_PAGE, "rows": rows})


def _as_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Refusal("The text contains half of a surrogate pair, which is not a character.") from None
