"""Growth: what each merge contributes on a text, and bytes per token at every smaller vocabulary, from one encoding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gristmill.analysis.vocabulary import Ids
from gristmill.encode.tokenizer import Tokenizer

__all__ = ["compression_curve", "count_merges", "unexpectedly_rare_tokens"]

NUM_SIZES = 40
NEIGHBOURS = 64  # merges before, and as many after
MIN_EXPECTED = 16  # applications; with fewer, a token that is missing is no surprise


def count_merges(tokenizer: Tokenizer, counts: NDArray[np.integer]) -> NDArray[np.int64] | None:
    """Return how often each merge is applied when a text is encoded; entry i belongs to merge i.

    counts: how often each id occurs in the encoded text.

    An id that a merge creates stands for one application of this merge, and for one occurrence of each of its two
    parts, which merges created earlier. Going through the merges from last to first therefore gives all numbers
    exactly, without encoding again. None for a vocabulary in which this does not hold: several merges create one
    token, a part is created after the merge that needs it, or some tokens are created by no merge.

    >>> tok = Tokenizer([(b"l", b"o"), (b"lo", b"w")])
    >>> count_merges(tok, np.bincount(tok.encode_array("low lot"), minlength=258)).tolist()
    [2, 1]
    """
    if not has_one_merge_per_token(tokenizer):
        return None
    remaining = np.asarray(counts, np.int64).tolist()
    applied = []
    for (left, right), made in zip(
        reversed(tokenizer.merge_ids.tolist()), reversed(tokenizer.merged_ids.tolist()), strict=True
    ):
        number = remaining[made]
        remaining[left] += number
        remaining[right] += number
        applied.append(number)
    return np.array(applied[::-1], np.int64)


def has_one_merge_per_token(tokenizer: Tokenizer) -> bool:
    """Return whether exactly one merge creates each token of several bytes, after the merges of its parts."""
    vocabulary = tokenizer.parts.vocabulary
    if vocabulary.is_plain:
        return True
    if vocabulary.other_tokens or vocabulary.whole_pieces:
        return False
    left, right, made = vocabulary.merges.astype(np.int64).T
    order = np.full(vocabulary.size, -1)
    order[made] = np.arange(len(made))
    is_earlier = np.maximum(order[left], order[right]) < np.arange(len(made))
    return len(np.unique(made)) == len(made) and bool(is_earlier.all())


def compression_curve(
    tokenizer: Tokenizer, counts: NDArray[np.integer], num_bytes: int, *, num_sizes: int = NUM_SIZES
) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """Return vocabulary sizes, spaced evenly on a logarithmic axis, and the bytes per token that each would give.

    The numbers are those of a tokenizer with only the first merges, such as `Tokenizer.truncated` returns: each
    application of a merge saves one token. None for an empty text, a tokenizer without merges, or a vocabulary that
    `count_merges` does not support.

    counts: how often each id occurs in the encoded text.
    num_bytes: the size of the text.

    >>> tok = Tokenizer([(b"l", b"o"), (b"lo", b"w")])
    >>> ids = tok.encode_array("low low")
    >>> sizes, ratios = compression_curve(tok, np.bincount(ids, minlength=258), 7)
    >>> sizes.tolist(), ratios.round(3).tolist()
    ([256, 257, 258], [1.0, 1.4, 2.333])
    """
    applied = count_merges(tokenizer, counts)
    num_tokens = int(counts.sum())
    if applied is None or not len(applied) or not num_tokens:
        return None
    tokens_left = num_tokens + np.concatenate([np.cumsum(applied[::-1])[::-1], [0]])  # with the first i merges
    smallest = len(tokenizer.vocab) - len(applied)
    sizes = np.unique(np.round(np.geomspace(smallest, smallest + len(applied), num_sizes)).astype(np.int64))
    return sizes, num_bytes / tokens_left[sizes - smallest]


def unexpectedly_rare_tokens(
    tokenizer: Tokenizer, counts: NDArray[np.integer], num_tokens: int = 20
) -> tuple[Ids, Ids, Ids]:
    """Return tokens that a text uses far less than tokens of similar rank, the largest factor first.

    Training learns frequent pairs first, so neighbouring merges were about equally frequent in the training corpus. A
    token is returned if its merge is applied at most a quarter as often as the geometric mean of its neighbours: its
    text is rare here, but was common where the tokenizer was trained. Parts of longer tokens are not returned, because
    their merges are applied. The result has the ids, how often each merge is applied, and how often its neighbours
    suggest.

    >>> tok = Tokenizer([(b"l", b"o"), (b"lo", b"w")])
    >>> [len(column) for column in unexpectedly_rare_tokens(tok, np.bincount(tok.encode_array("low"), minlength=258))]
    [0, 0, 0]
    """
    applied = count_merges(tokenizer, counts)
    if applied is None or not len(applied):
        return (np.empty(0, np.int64),) * 3
    expected = _geometric_means(applied)
    score = np.log((expected + 1) / (applied + 1))
    chosen = np.flatnonzero((score > np.log(4)) & (expected >= MIN_EXPECTED))
    chosen = chosen[np.argsort(-score[chosen], kind="stable")][:num_tokens]
    return tokenizer.merged_ids.astype(np.int64)[chosen], applied[chosen], np.round(expected[chosen]).astype(np.int64)


def _geometric_means(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return, for each number, the geometric mean of its neighbours and itself, shifted by 1 so that 0 is allowed."""
    sums = np.concatenate([[0.0], np.cumsum(np.log1p(numbers))])
    places = np.arange(len(numbers))
    first = np.maximum(places - NEIGHBOURS, 0)
    last = np.minimum(places + NEIGHBOURS + 1, len(numbers))
    means: NDArray[np.float64] = np.expm1((sums[last] - sums[first]) / (last - first))
    return means
