"""`Encoder`, what turns text into ids, and the part of `Tokenizer` that holds one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from gristmill import _core
from gristmill.arguments import check_kernel
from gristmill.corpus.batches import Buffer
from gristmill.encode.regex_encoder import RegexEncoder
from gristmill.encode.special_rules import NONE, SpecialRules
from gristmill.errors import TokenizerFormatError
from gristmill.pretokenize.patterns import warn_of_slow_pattern
from gristmill.progress import OnProgress
from gristmill.tokenizer import TokenizerParts, Vocabulary
from gristmill.tokenizer.vocabulary_methods import VocabularyMethods

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

    def for_threads(self, num_threads: int) -> AbstractContextManager[EncodesDocuments[Rule]]:
        """What so many threads encode documents with at once."""

    def decode_bytes(self, ids: NDArray[np.uint32]) -> bytes:
        """The bytes of `ids`; KeyError for an unknown one, naming it."""

    def decode_list(self, ids: list[int]) -> bytes:
        """The same of a list."""


class NativeEncoder(_core.Encoder):
    """The encoder of the core: threads share it, with the GIL released."""

    may_cut = True

    def for_threads(self, num_threads: int) -> AbstractContextManager[NativeEncoder]:
        """Itself."""
        return nullcontext(self)

    def stop(self) -> None:
        """Nothing: a cancellation ends what the core does."""


def build_encoder(parts: TokenizerParts) -> Encoder[Any]:
    """The encoder of a vocabulary and a pattern."""
    check_kernel()
    encoder = native_encoder(parts.vocabulary, parts.pattern.name)
    if parts.pattern.name is not None:
        return encoder
    warn_of_slow_pattern(parts.pattern)
    return RegexEncoder(encoder, parts.pattern.regex, parts.vocabulary)


def native_encoder(vocabulary: Vocabulary, pattern: str | None) -> NativeEncoder:
    """The encoder of the core; without a pattern it encodes pieces only."""
    try:
        return NativeEncoder(
            byte_ids=vocabulary.byte_ids,
            merges=vocabulary.merges,
            other_tokens=list(vocabulary.other_tokens.values()),
            other_ids=list(vocabulary.other_tokens),
            whole_pieces=vocabulary.whole_pieces,
            pattern=pattern,
            special_tokens=[special.encode() for special in vocabulary.special_tokens],
            special_ids=list(vocabulary.special_tokens.values()),
        )
    except ValueError as error:  # such as tokens of gigabytes
        raise TokenizerFormatError(f"these merges cannot be used: {error}.") from None


class HasEncoder(VocabularyMethods):
    """A tokenizer with its encoder: what `EncodeMethods` and `DecodeMethods` build on."""

    @cached_property
    def _encoder(self) -> Encoder[Any]:
        # Two threads that come here at the same time build two; both are right, and one is kept.
        return build_encoder(self._parts)

    @cached_property
    def _token_lengths(self) -> NDArray[np.uint32]:
        return self._encoder.token_lengths

    @cached_property
    def _rules(self) -> SpecialRules[Any]:
        return SpecialRules(self._vocabulary.special_tokens, self._encoder.special_rule)

    @cached_property
    def _default_rule(self) -> Any:
        return self._rules.rule()

    @cached_property
    def _ordinary_rule(self) -> Any:
        return self._rules.rule(disallowed_special=NONE)
