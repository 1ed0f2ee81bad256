"""Comparing: shared vocabularies of tokenizers, and the places where they split a text differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.analysis.vocabulary import token_lengths
from gristmill.encode.tokenizer import Tokenizer

__all__ = ["Differences", "Overlap", "Place", "find_differences", "vocabulary_overlaps"]


@dataclass(frozen=True)
class Overlap:
    """Tokens that two tokenizers share, compared by their bytes."""

    first: int  # index of a tokenizer
    second: int
    num_shared: int
    num_first_only: int
    num_second_only: int

    @property
    def share(self) -> float:
        """Shared tokens as a share of all tokens of the two."""
        return self.num_shared / (self.num_shared + self.num_first_only + self.num_second_only)


@dataclass(frozen=True)
class Place:
    """A span of a text that tokenizers split differently, with the tokens of each."""

    begin: int  # in bytes
    end: int
    tokens: list[list[bytes]]  # by tokenizer


@dataclass(frozen=True)
class Differences:
    """All places where tokenizers split a text differently: their number and size, and the first of them."""

    num_places: int
    num_bytes: int
    places: list[Place]


def vocabulary_overlaps(tokenizers: Sequence[Tokenizer]) -> list[Overlap]:
    """Return the tokens that each pair of tokenizers shares.

    >>> first, second = Tokenizer([(b"l", b"o")]), Tokenizer([(b"l", b"o"), (b"lo", b"w")])
    >>> vocabulary_overlaps([first, second])
    [Overlap(first=0, second=1, num_shared=257, num_first_only=0, num_second_only=1)]
    """
    vocabularies = [set(tokenizer.vocab.values()) for tokenizer in tokenizers]
    overlaps = []
    for i, j in combinations(range(len(tokenizers)), 2):
        shared = len(vocabularies[i] & vocabularies[j])
        overlaps.append(Overlap(i, j, shared, len(vocabularies[i]) - shared, len(vocabularies[j]) - shared))
    return overlaps


def find_differences(
    tokenizers: Sequence[Tokenizer], ids: Sequence[NDArray[Any]], data: bytes, *, num_places: int
) -> Differences:
    """Return the places where tokenizers split `data` differently, with the tokens of the first `num_places`.

    ids: the ids of `data` by each tokenizer.

    >>> first, second = Tokenizer([(b"l", b"o")]), Tokenizer([(b"o", b"w")])
    >>> ids = [tokenizer.encode_array(b"a low") for tokenizer in (first, second)]
    >>> find_differences([first, second], ids, b"a low", num_places=5).places
    [Place(begin=2, end=5, tokens=[[b'lo', b'w'], [b'l', b'ow']])]
    """
    ends = [np.cumsum(token_lengths(tokenizer)[each]) for tokenizer, each in zip(tokenizers, ids, strict=True)]
    starts, stops = _spans(ends)
    first = zip(starts[:num_places].tolist(), stops[:num_places].tolist(), strict=True)
    shown = [Place(begin, end, [_tokens(begin, end, each, data) for each in ends]) for begin, end in first]
    return Differences(len(starts), int((stops - starts).sum()), shown)


def _spans(cuts: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return begins and ends of the shortest spans between common token boundaries that are split differently."""
    common = cuts[0]
    for ends in cuts[1:]:
        common = np.intersect1d(common, ends, assume_unique=True)
    # Number of tokens between common boundaries: where it is 1 for every tokenizer, the tokens are identical.
    steps = [np.diff(np.searchsorted(ends, common, side="right"), prepend=0) for ends in cuts]
    is_same = np.all([step == 1 for step in steps], axis=0)
    begins = np.concatenate([[0], common])[:-1]
    return begins[~is_same], common[~is_same]


def _tokens(begin: int, end: int, ends: NDArray[np.int64], data: bytes) -> list[bytes]:
    first, last = np.searchsorted(ends, [begin, end], side="right").tolist()
    return [data[a:b] for a, b in pairwise([begin, *ends[first:last].tolist()])]
