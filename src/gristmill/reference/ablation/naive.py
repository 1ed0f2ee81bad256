"""(a) The naive trainer: before every merge, count the pairs of all words again.

`count_words` reads the file once and counts equal pieces: a distinct piece with its count is a *word*. From then on the
text is not needed, because a pair in a word that occurs 1,000 times counts 1,000 times. All programs start this way;
without it, a merge would read the whole corpus.

`learn_merges` takes three steps per merge: count the pairs of all words, choose the best pair, replace it in all words.

Cost: the first and the last step visit every token of every word, also of words without the merged pair. With W words
of L tokens and M merges that is M * W * L steps, and all of them run on one core. The words get shorter with each
merge, so the cost of a merge falls slowly, to about a fifth at the end.

Next: (b) counts the pairs on several cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import regex

from gristmill.pretokenize.patterns import resolve_pattern
from gristmill.reference.pipeline import Pair, Word, merge_pair

SPECIAL = "<|endoftext|>"


def count_words(path: Path, num_processes: int = 1) -> dict[bytes, int]:
    """Return the words of the file with their counts, in order of first occurrence."""
    return count_words_of(path.read_bytes())


def count_words_of(data: bytes) -> dict[bytes, int]:
    r"""Return the words of a text, which is split at `<|endoftext|>` first, so that no word crosses a document's end.

    >>> count_words_of(b"low low\r\nlow<|endoftext|>low")
    {b'low': 3, b' low': 1, b'\r': 1, b'\n': 1}
    """
    pattern = regex.compile(resolve_pattern("gpt2").regex)
    words: dict[str, int] = {}
    for document in data.decode("utf-8", "surrogateescape").split(SPECIAL):
        for match in pattern.finditer(document):
            piece = match.group()
            words[piece] = words.get(piece, 0) + 1
    return {word.encode("utf-8", "surrogateescape"): count for word, count in words.items()}


def learn_merges(words: Mapping[bytes, int], num_processes: int = 1) -> Iterator[Pair]:
    """Yield merges until no pair is left.

    >>> list(learn_merges({b"low": 3, b" lower": 1}))[:2]
    [(b'o', b'w'), (b'l', b'ow')]
    """
    tokens_of = split_into_bytes(words)
    weights = list(words.values())
    while counts := count_pairs(zip(tokens_of, weights, strict=True)):
        best = choose(counts)
        yield best
        tokens_of = [merge_pair(tokens, best) for tokens in tokens_of]


def split_into_bytes(words: Iterable[bytes]) -> list[Word]:
    """Return the tokens of each word before the first merge: its bytes."""
    return [[bytes([byte]) for byte in word] for word in words]


def count_pairs(weighted: Iterable[tuple[Word, int]]) -> dict[Pair, int]:
    """Return how often each pair occurs in words given as (tokens, count).

    >>> count_pairs([([b"a", b"a", b"a"], 2)])
    {(b'a', b'a'): 4}
    """
    counts: dict[Pair, int] = {}
    for tokens, weight in weighted:
        for pair in pairwise(tokens):
            counts[pair] = counts.get(pair, 0) + weight
    return counts


def choose(counts: Mapping[Pair, int]) -> Pair:
    """Return the pair with the greatest count; among equal counts the one with the greatest bytes.

    >>> choose({(b"a", b"b"): 2, (b"a", b"c"): 2, (b"z", b"z"): 1})
    (b'a', b'c')
    """
    return max(counts, key=lambda pair: (counts[pair], pair))
