"""encode, for patterns without a native matcher: the `regex` module cuts the text, the core encodes the pieces.

`RegexEncoder` has the methods of `_core.Encoder` that a `Tokenizer` calls, so that it need not know which
of them it has.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.pretokenize.pieces import cut_into_pieces, time_limit, to_bytes, too_slow
from gristmill.progress import OnProgress

EncodePiece = Callable[[bytes], list[int]]


class RegexRule:
    """Which specials become ids and which are an error."""

    def __init__(self, id_of: dict[bytes, int], allowed: Sequence[int], disallowed: Sequence[int]) -> None:
        self.id_of = id_of
        self.allowed = _longest_first(id_of, set(allowed))
        self.disallowed = _longest_first(id_of, set(disallowed))
        self.longest = max(map(len, id_of), default=1)

    def check(self, text: bytes, index: int = 0) -> None:
        """Raise for a disallowed special in text number `index` of a batch."""
        if match := self.disallowed.search(text):
            raise _core.ForgedSpecial(index, match.start(), self.id_of[match.group()])

    def split(self, text: bytes) -> Iterator[tuple[bytes, list[int]]]:
        """(document, id of the special behind it) of a text; behind the last one there is none."""
        begin = 0
        for match in self.allowed.finditer(text):
            yield text[begin : match.start()], [self.id_of[match.group()]]
            begin = match.end()
        yield text[begin:], []


def _longest_first(id_of: dict[bytes, int], ids: set[int]) -> re.Pattern[bytes]:
    specials = sorted((special for special, id in id_of.items() if id in ids), key=len, reverse=True)
    return re.compile(b"|".join(map(re.escape, specials)) or b"(?!)")  # (?!) matches nowhere


class RegexEncoder:
    """Ids of text under a pattern of the user's; immutable and safe to share between threads."""

    def __init__(self, core: _core.Encoder, regex: str, special_tokens: dict[str, int]) -> None:
        self._core = core
        self._regex = regex
        self._id_of_special = {special.encode(): id for special, id in special_tokens.items()}
        self.decode_bytes = core.decode_bytes
        self.decode_list = core.decode_list

    @property
    def dtype(self) -> str:
        """The natural width of ids."""
        return self._core.dtype

    @cached_property
    def token_lengths(self) -> NDArray[np.uint32]:
        """The number of bytes of each id."""
        return self._core.token_lengths

    def special_rule(self, allowed: Sequence[int], disallowed: Sequence[int]) -> RegexRule:
        """The rule that allows and disallows the specials with these ids."""
        return RegexRule(self._id_of_special, allowed, disallowed)

    def encode(self, text: str | bytes, rule: RegexRule) -> list[int]:
        """The ids of `text`."""
        data = _as_bytes(text)
        rule.check(data)
        return self._encode(data, rule, self._remembering())

    def encode_array(self, text: str | bytes, rule: RegexRule, num_threads: int = 1) -> NDArray[Any]:
        """The ids of `text` as an array."""
        return np.array(self.encode(text, rule), self.dtype)

    def encode_batch(
        self,
        texts: list[str | bytes],
        rule: RegexRule,
        num_threads: int = 1,
        cancellation: _core.Cancellation | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The ids of all texts in one array, and where each text's begin and end."""
        ids: list[int] = []
        offsets = [0]
        encode_piece = self._remembering()
        for i, text in enumerate(texts):
            if cancellation is not None and cancellation.is_cancelled:
                raise InterruptedError
            data = _as_bytes(text)
            rule.check(data, i)
            ids += self._encode(data, rule, encode_piece)
            offsets.append(len(ids))
        return np.array(ids, self.dtype), np.array(offsets, np.int64)

    def encode_documents(
        self,
        text: bytes | NDArray[np.uint8],
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        rule: RegexRule,
        *,
        end_of_text: int | None,
        before: bool,
        continued: bool,
        unfinished: bool,
        cancellation: _core.Cancellation,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The ids of documents that are stretches of `text`, each with `end_of_text`, and where each one's ids end."""
        assert not (continued or unfinished), "a pattern without a native matcher sees whole documents only"
        mark = [] if end_of_text is None else [end_of_text]
        data = np.frombuffer(text, np.uint8)
        documents = [data[begin:end].tobytes() for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        ids, offsets = self.encode_batch(cast(list[str | bytes], documents), rule, cancellation=cancellation)
        lengths = np.diff(offsets) + len(mark)
        if mark:
            ids = np.insert(ids, offsets[:-1] if before else offsets[1:], mark[0])
        return ids, np.cumsum(lengths)

    def encode_file(
        self,
        path: str | os.PathLike[str],
        rule: RegexRule,
        num_threads: int = 1,
        on_progress: OnProgress | None = None,
    ) -> NDArray[Any]:
        """The ids of the file at `path`."""
        data = Path(path).read_bytes()
        rule.check(data)
        parts = [np.empty(0, self.dtype)]
        encode_piece = self._remembering()
        done = 0
        for document, special in rule.split(data):
            parts.append(np.array(self._encode_document(document, encode_piece) + special, self.dtype))
            done += len(document)
            if on_progress is not None:
                on_progress("encode", done if special else len(data), len(data))
        return np.concatenate(parts)

    def count_tokens(self, text: str | bytes, rule: RegexRule, num_threads: int = 1) -> int:
        """How many ids `text` has."""
        return len(self.encode(text, rule))

    def encode_dropout(self, text: str | bytes, rule: RegexRule, dropout: float, seed: int) -> NDArray[np.uint32]:
        """The ids of `text` when each merge is skipped with probability `dropout`."""
        data = _as_bytes(text)
        rule.check(data)
        seeds = random.Random(seed)

        def encode_piece(piece: bytes) -> list[int]:
            return self._core.encode_piece_dropout(piece, dropout, seeds.getrandbits(64))

        return np.array(self._encode(data, rule, encode_piece), np.uint32)

    def encode_chunks(self, chunks: Iterable[bytes], rule: RegexRule) -> Iterator[list[int]]:
        """The ids of the chunks joined. Nothing is known about where a user's pattern cuts, so a document is held in
        memory until the allowed special behind it has come.
        """
        document: list[bytes] = []  # what surely belongs to it
        tail = b""  # what may still turn out to begin a special
        encode_piece = self._remembering()
        for chunk, is_last in _mark_last(self._checked(chunks, rule)):
            tail += chunk
            # What begins in the last bytes may go on in the next chunk: left until then.
            limit = len(tail) if is_last else max(0, len(tail) - rule.longest + 1)
            begin = 0
            for match in rule.allowed.finditer(tail):
                if match.start() >= limit:
                    break
                document.append(tail[begin : match.start()])
                yield [*self._encode_document(b"".join(document), encode_piece), rule.id_of[match.group()]]
                document, begin = [], match.end()
                encode_piece = self._remembering()
            kept = max(begin, limit)
            document.append(tail[begin:kept])
            tail = tail[kept:]
        yield self._encode_document(b"".join(document), encode_piece)

    def _checked(self, chunks: Iterable[bytes], rule: RegexRule) -> Iterator[bytes]:
        """The chunks again; raises for a disallowed special, also one that lies across their edges."""
        before, position = b"", 0
        for chunk in chunks:
            window = before + chunk
            if match := rule.disallowed.search(window):
                raise _core.ForgedSpecial(0, position + match.start(), rule.id_of[match.group()])
            before = window[max(0, len(window) - rule.longest + 1) :]
            position += len(window) - len(before)
            yield chunk

    def _encode(self, data: bytes, rule: RegexRule, encode_piece: EncodePiece) -> list[int]:
        ids: list[int] = []
        for document, special in rule.split(data):
            ids += self._encode_document(document, encode_piece)
            ids += special
        return ids

    def _encode_document(self, document: bytes, encode_piece: EncodePiece) -> list[int]:
        try:
            pieces = cut_into_pieces(document, self._regex, timeout=time_limit(document))
        except TimeoutError:
            raise too_slow(self._regex, document, "the text") from None
        return [id for piece in pieces for id in encode_piece(to_bytes(piece))]

    def _remembering(self) -> EncodePiece:
        """`encode_piece` that remembers its answers; for one call, so that its memory is bounded by the text."""
        ids_of: dict[bytes, list[int]] = {}

        def encode_piece(piece: bytes) -> list[int]:
            ids = ids_of.get(piece)
            if ids is None:
                ids = ids_of[piece] = self._core.encode_piece(piece)
            return ids

        return encode_piece


def _as_bytes(text: str | bytes) -> bytes:
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, bytes):
        return text
    raise TypeError


def _mark_last(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    for chunk in chunks:
        yield chunk, False
    yield b"", True
