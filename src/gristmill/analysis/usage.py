"""Usage: how often a text uses each token, and the measures that follow from these counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gristmill.analysis.vocabulary import token_classes
from gristmill.encode.special_rules import NONE, Specials
from gristmill.encode.tokenizer import Tokenizer

__all__ = [
    "RENYI_ALPHA",
    "Usage",
    "count_characters",
    "count_words",
    "measure",
    "renyi_efficiency",
    "sum_of",
    "usage_of_ids",
    "zipf_curve",
]

Counts = NDArray[np.int64]

RENYI_ALPHA = 2.5
ZIPF_POINTS = 200


@dataclass(frozen=True, eq=False)
class Usage:
    """Figures of a tokenizer on one text.

    Attributes:
        counts: How often each id occurs in the encoded text. The index is the id.
        num_bytes: Size of the text.
        num_characters: Characters of the text. A byte that is not part of a valid character counts as one.
        num_words: Words of the text: the longest spans without white space.
        num_vocabulary: Tokens of the vocabulary, special tokens included and gaps between ids excluded.
        unused: Ids of ordinary tokens that the text never uses, in order of id.
    """

    counts: Counts
    num_bytes: int
    num_characters: int
    num_words: int
    num_vocabulary: int
    unused: NDArray[np.int64]

    @cached_property
    def num_tokens(self) -> int:
        """Tokens of the text."""
        return int(self.counts.sum())

    @cached_property
    def num_used(self) -> int:
        """Distinct tokens that occur in the text."""
        return int(np.count_nonzero(self.counts))

    @property
    def bytes_per_token(self) -> float | None:
        """Size of the text divided by its number of tokens. None for an empty text."""
        return self.num_bytes / self.num_tokens if self.num_tokens else None

    @property
    def fertility(self) -> float | None:
        """Tokens per word. None for a text without a word."""
        return self.num_tokens / self.num_words if self.num_words else None

    @cached_property
    def renyi_efficiency(self) -> float | None:
        """Rényi efficiency of the counts; see `renyi_efficiency`. None for an empty text."""
        return renyi_efficiency(self.counts, self.num_vocabulary)


def measure(tokenizer: Tokenizer, text: str | bytes, *, allowed_special: Specials = NONE) -> Usage:
    """Return the figures of `tokenizer` on `text`.

    >>> tok = Tokenizer([(b"l", b"o"), (b"lo", b"w")])
    >>> usage = measure(tok, "low low")
    >>> usage.num_tokens, usage.num_words, usage.bytes_per_token, usage.fertility
    (3, 2, 2.3333333333333335, 1.5)
    """
    data = text.encode() if isinstance(text, str) else text
    ids = tokenizer.encode_array(data, allowed_special=allowed_special)
    return usage_of_ids(tokenizer, ids, data)


def usage_of_ids(tokenizer: Tokenizer, ids: NDArray[np.integer], data: bytes) -> Usage:
    """Return the figures of `tokenizer` on `data`, whose ids are already known."""
    counts = np.bincount(ids, minlength=tokenizer.vocab_size)
    classes = token_classes(tokenizer)
    return Usage(
        counts=counts,
        num_bytes=len(data),
        num_characters=count_characters(data),
        num_words=count_words(data),
        num_vocabulary=len(classes.ordinary) + len(classes.specials),
        unused=classes.ordinary[counts[classes.ordinary] == 0],
    )


def sum_of(usages: Sequence[Usage]) -> Usage:
    """Return the figures on several texts together, by one tokenizer.

    >>> tok = Tokenizer([(b"l", b"o")])
    >>> total = sum_of([measure(tok, "lo"), measure(tok, "a b")])
    >>> total.num_tokens, total.num_words, len(total.unused)
    (4, 3, 253)
    """
    if len(usages) == 1:
        return usages[0]
    is_unused = np.logical_and.reduce([np.isin(usages[0].unused, usage.unused) for usage in usages])
    return Usage(
        counts=np.sum([usage.counts for usage in usages], axis=0),
        num_bytes=sum(usage.num_bytes for usage in usages),
        num_characters=sum(usage.num_characters for usage in usages),
        num_words=sum(usage.num_words for usage in usages),
        num_vocabulary=usages[0].num_vocabulary,
        unused=usages[0].unused[is_unused],
    )


def renyi_efficiency(counts: NDArray[np.integer], num_vocabulary: int, *, alpha: float = RENYI_ALPHA) -> float | None:
    """Return the Rényi entropy of the token frequencies, divided by its maximum, the logarithm of `num_vocabulary`.

    With p the share of each token in the text, it is log(sum p^alpha) / (1 - alpha) / log(num_vocabulary). It is 1 if
    every token of the vocabulary is equally frequent, and 0 if the text repeats one token. None for an empty text.
    Source: Zouhar et al., "Tokenization and the Noiseless Channel", ACL 2023, which recommends alpha = 2.5.

    >>> renyi_efficiency(np.array([5, 5, 5, 5]), 4), renyi_efficiency(np.array([7, 0, 0, 0]), 4)
    (1.0, 0.0)
    """
    total = int(counts.sum())
    if not total:
        return None
    shares = counts[counts > 0] / total
    entropy = float(np.log(np.sum(shares**alpha)) / (1 - alpha))
    return max(0.0, entropy / math.log(num_vocabulary))


def count_characters(data: bytes) -> int:
    r"""Return the number of characters in UTF-8. Each byte that is not part of a valid character counts as one.

    >>> count_characters("né".encode()), count_characters(b"a\xff\xfe")
    (2, 3)
    """
    return len(data) if data.isascii() else len(data.decode("utf-8", "surrogateescape"))


def count_words(data: bytes) -> int:
    r"""Return the number of words in UTF-8: the longest spans of characters that are not white space.

    The white space is that of Unicode, as in `str.split()`.

    >>> count_words(b"  a word\n"), count_words("a\u3000b".encode()), count_words(b" \n")
    (2, 2, 0)
    """
    if data.isascii():
        return _count_starts(_ASCII_SPACE[np.frombuffer(data, np.uint8)])
    text = data.decode("utf-8", "surrogateescape")
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return _count_starts(np.isin(codes, _SPACES))


def zipf_curve(counts: NDArray[np.integer], max_points: int = ZIPF_POINTS) -> tuple[Counts, Counts]:
    """Return ranks and counts of the tokens, the most frequent first, at ranks spaced evenly on a logarithmic axis.

    The last rank is the number of distinct tokens. Both arrays are empty if no token occurs.

    >>> [column.tolist() for column in zipf_curve(np.array([2, 0, 9, 4]))]
    [[1, 2, 3], [9, 4, 2]]
    """
    ordered = np.sort(counts[counts > 0])[::-1].astype(np.int64)
    if not len(ordered):
        return ordered, ordered
    ranks = np.unique(np.round(np.geomspace(1, len(ordered), max_points)).astype(np.int64))
    return ranks, ordered[ranks - 1]


def _count_starts(is_space: NDArray[np.bool_]) -> int:
    """Return the number of spans that are not white space."""
    if not len(is_space):
        return 0
    return int(np.count_nonzero(is_space[:-1] & ~is_space[1:])) + int(not is_space[0])


_SPACES = np.array([code for code in range(0x10000) if chr(code).isspace()], np.uint32)
_ASCII_SPACE = np.array([chr(code).isspace() for code in range(256)])
