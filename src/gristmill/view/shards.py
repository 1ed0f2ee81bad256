"""Shards: the page about folders of shards: documents, search, lengths and token frequencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np
from anyio import to_thread
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from gristmill.analysis.shard_contents import counts_documents, length_bins, length_percentiles
from gristmill.analysis.usage import zipf_curve
from gristmill.errors import InputChangedError, ShardsFormatError, UnknownTokenError
from gristmill.shards.layouts import layout_of
from gristmill.view.artefacts import Artefacts
from gristmill.view.replies import Refusal, pick, read, reply
from gristmill.view.shard_folder import OpenFolder, OpenSplit, ShardFolder, written_so_far
from gristmill.view.shard_search import search_ids, search_text
from gristmill.view.token_texts import shown, token_texts

if TYPE_CHECKING:
    from gristmill.encode import Tokenizer

__all__ = ["routes"]

PAGE_TOKENS = 2_000  # of a document
PAGE_ROWS = 50
FREQUENCY_ROWS = 25
SHOWN_BYTES = 24  # of a token, in hexadecimal
MAX_NUMBER = 2**53 - 1  # JavaScript represents larger integers inexactly


class SearchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A search from `cursor` on, in the shards of this `edition`."""

    split: str
    query: str
    kind: Literal["text", "ids"]
    edition: str
    cursor: Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)] = 0
    ignore_case: bool = False
    tokenizer: int | None = None


def routes(artefacts: Artefacts) -> list[BaseRoute]:
    """Return the routes of the page, below /api/shards."""
    return _Room(artefacts).routes()


class _Room:
    def __init__(self, artefacts: Artefacts) -> None:
        self._artefacts = artefacts
        self._folders = tuple(ShardFolder(each.path) for each in artefacts.shards)

    def routes(self) -> list[BaseRoute]:
        below = "/api/shards/{number}"
        return [
            Route(below, self.facts),
            Route(f"{below}/state", self.state),
            Route(f"{below}/inputs", self.inputs),
            Route(f"{below}/files", self.files),
            Route(f"{below}/document", self.document),
            Route(f"{below}/search", self.search, methods=["POST"]),
            Route(f"{below}/lengths", self.lengths),
            Route(f"{below}/frequencies", self.frequencies),
        ]

    # What the folder is

    def state(self, request: Request) -> Response:
        """Reply with the edition in the folder, or with the reason why it cannot be shown. The page asks repeatedly."""
        folder = self._folder(request)
        opened = _try_open(folder)
        return reply({"edition": opened.edition} if isinstance(opened, OpenFolder) else opened)

    def facts(self, request: Request) -> Response:
        """Reply with everything in the manifest except long lists."""
        folder = self._folder(request)
        opened = _try_open(folder)
        if not isinstance(opened, OpenFolder):
            return reply(opened)
        manifest, mark = opened.manifest, opened.manifest.end_of_text
        layout = layout_of(manifest.layout, manifest.options)
        has_number = counts_documents(manifest)
        return reply(
            {
                "edition": opened.edition,
                "path": str(folder.path),
                "layout": manifest.layout,
                "dtype": manifest.dtype,
                "foreign": opened.is_foreign,
                "vocab_size": manifest.vocab_size or None,
                "fingerprint": manifest.tokenizer_fingerprint or None,
                "end_of_text": None
                if mark is None
                else {"id": mark.id, "token": shown(mark.token), "position": mark.position},
                "unreadable": _why_unreadable(opened) if layout.converts else None,
                "splits": [
                    {
                        "name": name,
                        "documents": split.documents if has_number else None,
                        "tokens": split.tokens,
                        "source_bytes": None if opened.is_foreign else split.source_bytes,
                        "bytes": sum(entry.bytes for entry in split.shards),
                        "shards": len(split.shards),
                    }
                    for name, split in manifest.splits.items()
                ],
                "inputs": len(manifest.inputs),
                "input_bytes": sum(entry.bytes for entry in manifest.inputs if entry.skipped is None),
                "skipped": sum(entry.skipped is not None for entry in manifest.inputs),
                "num_nulls": manifest.num_nulls,
                "options": {name: _option(value) for name, value in manifest.options.items()},
                "command": shown(manifest.command[:10_000]),
            }
        )

    def inputs(self, request: Request) -> Response:
        """Reply with some of the input files of the corpus."""
        begin = _number(request, "begin")
        entries = self._folder(request).opened().manifest.inputs
        rows = [
            {
                "path": shown(entry.path),
                "format": entry.format,
                "compression": entry.compression,
                "bytes": entry.bytes,
                "skipped": entry.skipped,
            }
            for entry in entries[begin : begin + PAGE_ROWS]
        ]
        return reply({"rows": rows, "total": len(entries)})

    def files(self, request: Request) -> Response:
        """Reply with some of the shards of a split."""
        begin = _number(request, "begin")
        opened, name = self._folder(request).opened(), request.query_params.get("split", "")
        if name not in opened.manifest.splits:
            raise Refusal(f"There is no split {name[:40]!r}.", 404)
        entries = opened.manifest.splits[name].shards
        rows = [
            {
                "file": shown(entry.file),
                "tokens": entry.tokens,
                "documents": None if opened.is_foreign and entry.index is None else entry.documents,
                "bytes": entry.bytes,
                "checksum": None if opened.is_foreign else entry.xxh64,
            }
            for entry in entries[begin : begin + PAGE_ROWS]
        ]
        return reply({"rows": rows, "total": len(entries)})

    # Documents

    def document(self, request: Request) -> Response:
        """Reply with tokens of a document, from an offset on."""
        opened, split = self._split(request, request.query_params.get("split", ""), _tokenizer_number(request))
        number, offset = _number(request, "number"), _number(request, "offset")
        frame = {
            "edition": opened.edition,
            "total": len(split),
            "unit": "document" if split.why_parts is None else "part",
            "why_parts": split.why_parts,
            "why_no_tokenizer": split.why_no_tokenizer,
            "page_tokens": PAGE_TOKENS,
        }
        if not len(split):
            return reply({**frame, "number": None})
        begin, end = split.span(number)
        offset = min(offset, max(end - begin - 1, 0)) // PAGE_TOKENS * PAGE_TOKENS
        ids = split.shards.tokens.stretch(begin + offset, min(begin + offset + PAGE_TOKENS, end))
        shard = int(np.searchsorted(split.shards.tokens.begins, begin, "right")) - 1
        files = split.shards.paths
        return reply(
            {
                **frame,
                "number": number,
                "begin": begin,
                "num_tokens": end - begin,
                "offset": offset,
                "file": shown(files[min(shard, len(files) - 1)].name) if files else None,
                **_tokens(split.tokenizer, ids),
            }
        )

    async def search(self, request: Request) -> Response:
        """Reply with documents that match, and with the cursor of the next request."""
        wanted = await read(request, SearchRequest)
        return await to_thread.run_sync(self._search, request, wanted)

    def _search(self, request: Request, wanted: SearchRequest) -> Response:
        opened, split = self._split(request, wanted.split, wanted.tokenizer)
        if opened.edition != wanted.edition:
            raise Refusal("The shards have been replaced since the search began. Search again.", 409)
        if wanted.kind == "text":
            searched = search_text(split, wanted.query, cursor=wanted.cursor, ignore_case=wanted.ignore_case)
        else:
            searched = search_ids(split, wanted.query, cursor=wanted.cursor)
        return reply({"results": searched.results, "cursor": searched.cursor, "total": split.shards.num_tokens})

    # Statistics

    def lengths(self, request: Request) -> Response:
        """Reply with a histogram of document lengths."""
        opened, name = self._folder(request).opened(), request.query_params.get("split", "")
        lengths = opened.lengths(name)
        total = opened.manifest.splits[name].documents
        if not len(lengths) and not layout_of(opened.manifest.layout, opened.manifest.options).converts:
            split = self._split(request, name, _tokenizer_number(request))[1]
            if split.why_parts is not None:
                return reply({"edition": opened.edition, "problem": split.why_parts})
            lengths = np.diff(split.shards.document_ends, prepend=0)
            total = len(lengths)
        if not len(lengths):
            return reply({"edition": opened.edition, "problem": "The split has no documents."})
        edges, counts, is_log = length_bins(lengths)
        return reply(
            {
                "edition": opened.edition,
                "counted": len(lengths),
                "total": total,
                "edges": edges,
                "is_log": is_log,
                "counts": counts,
                "percentiles": length_percentiles(lengths),
                "mean": float(lengths.mean()),
            }
        )

    def frequencies(self, request: Request) -> Response:
        """Reply with some rows of the table of token counts, in one of several orders."""
        order, begin = request.query_params.get("order", "top"), _number(request, "begin")
        name = request.query_params.get("split", "")
        opened = self._folder(request).opened()
        counts = opened.counts(name)
        tokenizer = self._tokenizer_of(request, opened, name)
        if order == "unused":
            known = np.ones(len(counts), np.bool_) if tokenizer is None else _known_ids(tokenizer, len(counts))
            ids = np.flatnonzero((counts == 0) & known)
        elif order in ("top", "bottom"):
            used = np.flatnonzero(counts)
            ids = used[np.argsort(-counts[used] if order == "top" else counts[used], kind="stable")]
        else:
            raise Refusal(f"The order must be 'top', 'bottom' or 'unused', got {order[:20]!r}.")
        rows = [
            {"id": id, "count": int(counts[id]), **_token(tokenizer, id)}
            for id in ids[begin : begin + FREQUENCY_ROWS].tolist()
        ]
        ranks, values = zipf_curve(counts)
        return reply(
            {
                "edition": opened.edition,
                "rows": rows,
                "page_rows": FREQUENCY_ROWS,
                "total": len(ids),
                "counted": int(counts.sum()),
                "num_tokens": opened.manifest.splits[name].tokens,
                "used": int(np.count_nonzero(counts)),
                "vocab_size": opened.manifest.vocab_size or (tokenizer.vocab_size if tokenizer else None),
                "zipf": {"ranks": ranks.tolist(), "counts": values.tolist()},
            }
        )

    # Parts of requests

    def _folder(self, request: Request) -> ShardFolder:
        return pick(self._folders, request.path_params["number"], "folder of shards")

    def _split(self, request: Request, name: str, number: int | None) -> tuple[OpenFolder, OpenSplit]:
        opened = self._folder(request).opened()
        given = None if number is None else pick(self._artefacts.tokenizers, str(number), "tokenizer").tokenizer
        return opened, opened.split(name, given, number)

    def _tokenizer_of(self, request: Request, opened: OpenFolder, name: str) -> Tokenizer | None:
        """Return the tokenizer of a split, also for a layout that `Shards` cannot read."""
        from gristmill.shards.shards import load_tokenizer

        if layout_of(opened.manifest.layout, opened.manifest.options).converts:
            return load_tokenizer(opened.manifest, opened.path)
        return self._split(request, name, _tokenizer_number(request))[1].tokenizer


def _try_open(folder: ShardFolder) -> OpenFolder | dict[str, Any]:
    """Return the open folder, or the reply that explains why it cannot be shown now. It may be possible later."""
    try:
        return folder.opened()
    except FileNotFoundError:
        return {"problem": f"{folder.path} no longer exists. This page continues when the folder is back."}
    except (ShardsFormatError, InputChangedError, OSError) as error:
        return {"problem": " ".join(str(error).split()), "written": written_so_far(folder.path)}


def _why_unreadable(opened: OpenFolder) -> str:
    return (
        f"The layout {opened.manifest.layout} stores compressed tokens, so documents cannot be opened by number. "
        f"Encode with --format gristmill to browse and search them. Lengths and frequencies are shown below."
    )


def _tokens(tokenizer: Tokenizer | None, ids: NDArray[Any]) -> dict[str, Any]:
    """Return ids with the texts and bytes of their tokens; `special` and `unknown` are positions in `ids`."""
    numbers = ids.tolist()
    if tokenizer is None:
        return {"ids": numbers, "texts": None, "bytes": None, "special": [], "unknown": []}
    specials = set(tokenizer.special_tokens.values())
    tokens = [_bytes_of(tokenizer, id) for id in numbers]
    known = [token or b"" for token in tokens]
    return {
        "ids": numbers,
        "texts": token_texts(known),
        "bytes": [_hexadecimal(token) for token in known],
        "special": [i for i, id in enumerate(numbers) if id in specials],
        "unknown": [i for i, token in enumerate(tokens) if token is None],
    }


def _token(tokenizer: Tokenizer | None, id: int) -> dict[str, Any]:
    token = None if tokenizer is None else _bytes_of(tokenizer, id)
    if token is None:
        return {"text": None, "bytes": None}
    return {"text": token_texts([token])[0], "bytes": _hexadecimal(token)}


def _bytes_of(tokenizer: Tokenizer, id: int) -> bytes | None:
    try:
        return tokenizer.token_bytes(id)
    except UnknownTokenError:
        return None


def _hexadecimal(token: bytes) -> str:
    return token[:SHOWN_BYTES].hex(" ") + " …" * (len(token) > SHOWN_BYTES)


def _known_ids(tokenizer: Tokenizer, size: int) -> NDArray[np.bool_]:
    known = np.zeros(size, np.bool_)
    ids = np.fromiter(tokenizer.vocab, np.int64)
    known[ids[ids < size]] = True
    return known


def _option(value: Any) -> str:
    """Return the recorded value of an option as text."""
    return shown(value if isinstance(value, str) else msgspec.json.encode(value).decode())[:500]


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    if not text.isascii() or not text.isdecimal() or len(text) > 16 or int(text) > MAX_NUMBER:
        raise Refusal(f"{name} must be a whole number from 0 on, got {text[:20]!r}.")
    return int(text)


def _tokenizer_number(request: Request) -> int | None:
    return _number(request, "tokenizer") if request.query_params.get("tokenizer") else None
