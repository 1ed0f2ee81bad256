"""The `Encoder` for patterns without a native matcher: the `regex` module cuts the text, the core encodes the pieces.

Matching holds the GIL, so worker processes that run the same class encode long texts (`RegexWorkers`).
"""

from __future__ import annotations

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus.batches import Buffer
from gristmill.corpus.threads import map_in_order
from gristmill.encode.regex_rule import RegexRule
from gristmill.pretokenize.patterns import Pattern, warn_of_slow_pattern
from gristmill.pretokenize.pieces import cut_with_timeout, to_bytes
from gristmill.progress import OnProgress
from gristmill.tokenizer import Vocabulary

EncodePiece = Callable[[bytes], list[int]]
CutIntoPieces = Callable[[bytes, str, str], list[str]]  # (document, regex, its name in errors)

# Text that a worker encodes at a time. Less than twice this much is not worth starting processes.
GROUP_BYTES = 2 << 20
MAX_TEXTS = 1 << 16
# `marshal` limits objects to 2 GiB, and one byte may become an id of four bytes.
MAX_MESSAGE_BYTES = 256 << 20


class EncodesTexts(ABC):
    """Base of `RegexEncoder` and `RegexWorkers`: encodes documents of a buffer as a list of texts."""

    @abstractmethod
    def encode_texts(
        self, texts: list[bytes], rule: RegexRule, cancellation: _core.Cancellation | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of all texts in one array, and their number per text. Does not check for disallowed tokens."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the calls of other threads."""

    def encode_documents(
        self,
        text: Buffer,
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
        """Return the ids of documents, which are spans of `text`, with `end_of_text` added, and the end of each."""
        assert not (continued or unfinished), "a pattern without a native matcher sees whole documents only"
        data = np.frombuffer(text, np.uint8)
        documents = [data[begin:end].tobytes() for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        for i, document in enumerate(documents):
            rule.check(document, i)
        ids, lengths = self.encode_texts(documents, rule, cancellation)
        if end_of_text is not None:
            last = np.cumsum(lengths)
            ids = np.insert(ids, last - lengths if before else last, end_of_text)
            lengths = lengths + 1
        return ids, np.cumsum(lengths)


class RegexEncoder(EncodesTexts):
    """Encodes text with a user's pattern. Immutable and safe to share between threads."""

    may_cut = False

    def __init__(
        self, core: _core.Encoder, regex: str, vocabulary: Vocabulary, *, cut: CutIntoPieces | None = None
    ) -> None:
        self._core = core
        self._regex = regex
        self._vocabulary = vocabulary
        self._cut = cut or cut_with_timeout
        self._id_of_special = {special.encode(): id for special, id in vocabulary.special_tokens.items()}
        self.decode_bytes = core.decode_bytes
        self.decode_list = core.decode_list

    @property
    def dtype(self) -> str:
        """Integer type of the ids: "uint16" or "uint32"."""
        return self._core.dtype

    @cached_property
    def token_lengths(self) -> NDArray[np.uint32]:
        """Number of bytes of each id."""
        return self._core.token_lengths

    def special_rule(self, allowed: Sequence[int], disallowed: Sequence[int]) -> RegexRule:
        """Return the rule that allows and disallows the special tokens with these ids."""
        return RegexRule(self._id_of_special, allowed, disallowed)

    def encode(self, text: str | bytes, rule: RegexRule) -> list[int]:
        """Return the ids of `text`."""
        self._warn()
        data = _as_bytes(text)
        rule.check(data)
        return self._encode(data, rule, self._remembering())

    def encode_array(self, text: str | bytes, rule: RegexRule, num_threads: int = 1) -> NDArray[Any]:
        """Return the ids of `text` as an array."""
        data = _as_bytes(text)
        rule.check(data)
        return self._encode_long([data], rule, num_threads)[0]

    def encode_batch(
        self, texts: list[str | bytes], rule: RegexRule, num_threads: int = 1
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of all texts in one array, and the offsets of the texts in it."""
        parts = []
        for i, text in enumerate(texts):
            parts.append(_as_bytes(text))
            rule.check(parts[-1], i)
        ids, lengths = self._encode_long(parts, rule, num_threads)
        return ids, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    def encode_file(
        self,
        path: str | os.PathLike[str],
        rule: RegexRule,
        num_threads: int = 1,
        on_progress: OnProgress | None = None,
    ) -> NDArray[Any]:
        """Return the ids of the file at `path`."""
        data = Path(path).read_bytes()
        rule.check(data)
        return self._encode_long([data], rule, num_threads, on_progress)[0]

    def count_tokens(self, text: str | bytes, rule: RegexRule, num_threads: int = 1) -> int:
        """Return the number of ids of `text`."""
        return len(self.encode_array(text, rule, num_threads))

    def encode_dropout(self, text: str | bytes, rule: RegexRule, dropout: float, seed: int) -> NDArray[np.uint32]:
        """Return the ids of `text`, skipping each merge with probability `dropout`."""
        self._warn()
        data = _as_bytes(text)
        rule.check(data)
        seeds = random.Random(seed)

        def encode_piece(piece: bytes) -> list[int]:
            return self._core.encode_piece_dropout(piece, dropout, seeds.getrandbits(64))

        return np.array(self._encode(data, rule, encode_piece), np.uint32)

    def last_cut(self, text: Buffer, start: int, rule: RegexRule) -> int:
        """Return the end of the last allowed special token after `start`; 0 if not found.

        A user's pattern may match across any other position. The special token must not be the beginning of a longer
        one, and no disallowed special token may cross the cut.
        """
        data = bytes(text)
        rule.check(data, begin=max(0, start - rule.longest + 1))  # now, not only at the end of the text
        last = len(data) - rule.longest + 1  # after this position, a special token may still become a longer one
        cut = 0
        for match in rule.allowed.finditer(data):
            if match.start() >= last or match.end() > last:
                break
            if match.end() > start and not rule.crosses(data, match.end()):
                cut = match.end()
        return cut

    def encode_texts(
        self, texts: list[bytes], rule: RegexRule, cancellation: _core.Cancellation | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of all texts and their number per text, computed on the calling thread."""
        return self._encode_texts(texts, rule, self._remembering(), cancellation)

    def _encode_texts(
        self,
        texts: list[bytes],
        rule: RegexRule,
        encode_piece: EncodePiece,
        cancellation: _core.Cancellation | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        ids: list[int] = []
        ends = [0]
        for text in texts:
            if cancellation is not None and cancellation.is_cancelled:
                raise InterruptedError
            ids += self._encode(text, rule, encode_piece)
            ends.append(len(ids))
        return np.array(ids, self.dtype), np.diff(ends).astype(np.int64)

    def for_threads(self, num_threads: int) -> RegexWorkers:
        """Return this many worker processes with the same vocabulary and pattern.

        Even one thread gets a process, because Ctrl-C stops a process at once.
        """
        self._warn()
        return RegexWorkers(self, self._vocabulary, self._regex, num_threads)

    def stop(self) -> None:
        """Do nothing: a cancellation takes effect after the current text."""

    def close(self) -> None:
        """Do nothing: no process was started."""

    def _warn(self) -> None:
        warn_of_slow_pattern(Pattern(self._regex))

    def _encode_long(
        self, texts: list[bytes], rule: RegexRule, num_workers: int, on_progress: OnProgress | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of all texts and their number per text. Workers share large texts, cut at allowed specials."""
        self._warn()
        total, done = sum(map(len, texts)), 0
        num_workers = num_workers if total >= 2 * GROUP_BYTES else 1
        if num_workers == 1 and on_progress is None:
            return self.encode_texts(texts, rule)
        parts = [[text] if len(text) < GROUP_BYTES else list(rule.parts(text, GROUP_BYTES)) for text in texts]
        ids, lengths = [np.empty(0, self.dtype)], [np.empty(0, np.int64)]
        groups = _gathered(chain.from_iterable(parts), GROUP_BYTES)
        with closing(self._encode_groups(groups, rule, num_workers)) as encoded:
            for group, (some_ids, some_lengths) in encoded:
                ids.append(some_ids)
                lengths.append(some_lengths)
                done += sum(map(len, group))
                if on_progress is not None:
                    on_progress("encode", done, total)
        firsts = np.cumsum([0, *map(len, parts)])[:-1]  # every text has at least one part
        return np.concatenate(ids), np.add.reduceat(np.concatenate(lengths), firsts) if texts else lengths[0]

    def _encode_groups(
        self, groups: Iterable[list[bytes]], rule: RegexRule, num_workers: int
    ) -> Generator[tuple[list[bytes], tuple[NDArray[Any], NDArray[np.int64]]]]:
        if num_workers == 1:
            encode_piece = self._remembering()
            yield from ((group, self._encode_texts(group, rule, encode_piece)) for group in groups)
            return
        with closing(self.for_threads(num_workers)) as workers:

            def encode(group: list[bytes]) -> tuple[list[bytes], tuple[NDArray[Any], NDArray[np.int64]]]:
                return group, workers.encode_texts(group, rule)

            with closing(map_in_order(encode, groups, num_threads=num_workers, cancel=workers.stop)) as encoded:
                yield from encoded

    def _encode(self, data: bytes, rule: RegexRule, encode_piece: EncodePiece) -> list[int]:
        ids: list[int] = []
        for document, special in rule.split(data):
            ids += self._encode_document(document, encode_piece)
            ids += special
        return ids

    def _encode_document(self, document: bytes, encode_piece: EncodePiece) -> list[int]:
        pieces = self._cut(document, self._regex, "the text")
        return [id for piece in pieces for id in encode_piece(to_bytes(piece))]

    def _remembering(self) -> EncodePiece:
        """Return `encode_piece` with a cache. The cache serves one call, so the text bounds its memory."""
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


def _gathered(texts: Iterable[bytes], num_bytes: int) -> Iterator[list[bytes]]:
    """Yield the texts in lists of at least `num_bytes`; the last list may be shorter."""
    group: list[bytes] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size >= num_bytes or len(group) == MAX_TEXTS:
            yield group
            group, size = [], 0
    if group:
        yield group


class RegexWorkers(EncodesTexts):
    """Worker processes, each with its own `RegexEncoder`, started when needed."""

    def __init__(self, encoder: RegexEncoder, vocabulary: Vocabulary, regex: str, num_workers: int) -> None:
        from gristmill.pretokenize.worker_pool import WorkerPool  # not at the top: native patterns never need it

        self._encoder = encoder
        self._pool = WorkerPool("gristmill.encode.regex_worker", (vocabulary.pack(), regex), num_workers)

    def stop(self) -> None:
        """Stop the processes. Threads that wait for one get a WorkerError."""
        self._pool.stop()

    def close(self) -> None:
        """Stop the processes and wait for them."""
        self._pool.close()

    def encode_texts(
        self, texts: list[bytes], rule: RegexRule, cancellation: _core.Cancellation | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of all texts and their number per text, computed by an idle worker."""
        if sum(map(len, texts)) > MAX_MESSAGE_BYTES:
            return self._encoder.encode_texts(texts, rule, cancellation)
        ids, lengths = self._pool.ask(texts, rule.allowed_ids)
        return np.frombuffer(ids, self._encoder.dtype), np.frombuffer(lengths, np.int64)
