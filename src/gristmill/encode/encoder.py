"""`Encoder`: the protocol of an object that turns text into ids. Two classes implement it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.corpus.batches import Buffer
from gristmill.progress import OnProgress

Rule = TypeVar("Rule")
RuleIn = TypeVar("RuleIn", contravariant=True)


class EncodesDocuments(Protocol[RuleIn]):
    """Encodes documents of a buffer: an encoder, or its worker processes."""

    def encode_documents(
        self,
        text: Buffer,
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        rule: RuleIn,
        *,
        end_of_text: int | None,
        before: bool,
        continued: bool,
        unfinished: bool,
        cancellation: _core.Cancellation,
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of documents, which are spans of `text`, with `end_of_text` added, and the end of each."""

    def stop(self) -> None:
        """Stop the calls of other threads that a cancellation does not stop."""

    def close(self) -> None:
        """Stop the worker processes. No thread may be encoding."""


class Encoder(EncodesDocuments[Rule], Protocol[Rule]):
    """Encodes text with a vocabulary and a pattern. Immutable and safe to share between threads.

    `NativeEncoder` handles native patterns, `RegexEncoder` all others. `Rule` is the type in which each stores the
    allowed and disallowed special tokens. A disallowed special token in a text raises `_core.ForgedSpecial`.
    """

    may_cut: bool  # documents may be cut at `last_cut` and encoded in parts; otherwise only as a whole

    @property
    def dtype(self) -> str:
        """Integer type of the ids: "uint16" if it can represent all of them, otherwise "uint32"."""

    @property
    def token_lengths(self) -> NDArray[np.uint32]:
        """Number of bytes of each id; 0 for an id without a token."""

    def special_rule(self, allowed: Sequence[int], disallowed: Sequence[int]) -> Rule:
        """Return the rule that allows and disallows the special tokens with these ids."""

    def encode(self, text: str | bytes, rule: Rule) -> list[int]:
        """Return the ids of `text`, computed on the calling thread."""

    def encode_array(self, text: str | bytes, rule: Rule, num_threads: int = 1) -> NDArray[Any]:
        """Return the ids of `text` as an array."""

    def encode_batch(
        self, texts: list[str | bytes], rule: Rule, num_threads: int = 1
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ids of all texts in one array, and the offsets of the texts in it: n + 1 for n texts."""

    def encode_file(
        self, path: str | os.PathLike[str], rule: Rule, num_threads: int = 1, on_progress: OnProgress | None = None
    ) -> NDArray[Any]:
        """Return the ids of the file at `path`."""

    def count_tokens(self, text: str | bytes, rule: Rule, num_threads: int = 1) -> int:
        """Return the number of ids of `text`."""

    def encode_dropout(self, text: str | bytes, rule: Rule, dropout: float, seed: int) -> NDArray[np.uint32]:
        """Return the ids of `text`, skipping each merge with probability `dropout`."""

    def last_cut(self, text: Buffer, start: int, rule: Rule) -> int:
        """Return a position > start, near the end, where `text` may be cut whatever follows it; 0 if not found."""

    def for_threads(self, num_threads: int) -> EncodesDocuments[Rule]:
        """Return an encoder of documents for this many concurrent threads. The caller closes it."""

    def decode_bytes(self, ids: NDArray[np.uint32]) -> bytes:
        """Return the bytes of `ids`. Raises KeyError with the id for an unknown one."""

    def decode_list(self, ids: list[int]) -> bytes:
        """Same as `decode_bytes`, for a list."""
