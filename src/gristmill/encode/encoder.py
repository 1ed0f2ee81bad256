"""`Encoder`: what turns text into ids, as a protocol that two classes fulfil."""

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
    """What encodes documents of a buffer: an encoder, or the worker processes of one."""

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
        """The ids of documents that are stretches of `text`, each with `end_of_text`, and where each one's ids end."""

    def stop(self) -> None:
        """End what other threads are encoding, as far as a cancellation does not."""

    def close(self) -> None:
        """End what was started for it. Nobody may be encoding any more."""


class Encoder(EncodesDocuments[Rule], Protocol[Rule]):
    """Ids of text under a vocabulary and a pattern; immutable and safe to share between threads.

    `NativeEncoder` is the one of native patterns, `RegexEncoder` that of all others. `Rule` is what each of them makes
    of the special tokens that are allowed and disallowed. A disallowed one in a text is a `_core.ForgedSpecial`.
    """

    may_cut: bool  # documents may be encoded in parts, cut where `last_cut` says; otherwise only whole ones

    @property
    def dtype(self) -> str:
        """What ids are given in: "uint16" where all fit, else "uint32"."""

    @property
    def token_lengths(self) -> NDArray[np.uint32]:
        """The number of bytes of every id; 0 for one that no token has."""

    def special_rule(self, allowed: Sequence[int], disallowed: Sequence[int]) -> Rule:
        """The rule that allows and disallows the specials with these ids."""

    def encode(self, text: str | bytes, rule: Rule) -> list[int]:
        """The ids of `text`, on the calling thread."""

    def encode_array(self, text: str | bytes, rule: Rule, num_threads: int = 1) -> NDArray[Any]:
        """The ids of `text` as an array."""

    def encode_batch(
        self, texts: list[str | bytes], rule: Rule, num_threads: int = 1
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The ids of all texts end to end, and where each begins; the last offset is their number."""

    def encode_file(
        self, path: str | os.PathLike[str], rule: Rule, num_threads: int = 1, on_progress: OnProgress | None = None
    ) -> NDArray[Any]:
        """The ids of the file at `path`."""

    def count_tokens(self, text: str | bytes, rule: Rule, num_threads: int = 1) -> int:
        """How many ids `text` has."""

    def encode_dropout(self, text: str | bytes, rule: Rule, dropout: float, seed: int) -> NDArray[np.uint32]:
        """The ids of `text` when each merge is skipped with probability `dropout`."""

    def last_cut(self, text: Buffer, start: int, rule: Rule) -> int:
        """A position > start, near the end, where `text` may be cut whatever follows it; 0 if there is none."""

    def for_threads(self, num_threads: int) -> EncodesDocuments[Rule]:
        """What so many threads encode documents with at once; close it in the end."""

    def decode_bytes(self, ids: NDArray[np.uint32]) -> bytes:
        """The bytes of `ids`; KeyError for an unknown one, naming it."""

    def decode_list(self, ids: list[int]) -> bytes:
        """The same of a list."""
