"""(f) Count the pairs once, and after a merge update only the words that contain the merged pair.

An *inverted index* has, for each pair, the numbers of the words that contain it. A merge looks up these words. For each
of them it subtracts the counts of its pairs, replaces the merged pair, and adds the counts of its new pairs. All other
words keep their pairs, so their counts stay right without a look at them.

Cost: the words of the merged pair instead of all words. The first merges change many words, later ones only a few.
There is so little left to do that a pool would cost more than it saves, and that all words can be kept: the merges are
exact again. What remains is the search for the greatest count among all pairs, once per merge. (The native core keeps
the pairs in buckets by count.)

Next: now counting the words takes most of the time, so (g) does it in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from gristmill.reference.ablation.naive import choose, split_into_bytes
from gristmill.reference.pipeline import Pair, merge_pair


def learn_merges(words: Mapping[bytes, int], num_processes: int = 1) -> Iterator[Pair]:
    """Yield merges until no pair is left."""
    tokens_of = split_into_bytes(words)
    weights = list(words.values())
    counts: dict[Pair, int] = {}
    words_with: dict[Pair, set[int]] = {}  # the index; may include words that no longer contain the pair

    def add_pairs_of(i: int) -> None:
        for pair in pairwise(tokens_of[i]):
            counts[pair] = counts.get(pair, 0) + weights[i]
            words_with.setdefault(pair, set()).add(i)

    def subtract_pairs_of(i: int) -> None:
        for pair in pairwise(tokens_of[i]):
            counts[pair] -= weights[i]
            if counts[pair] == 0:
                del counts[pair], words_with[pair]

    for i in range(len(weights)):
        add_pairs_of(i)
    while counts:
        best = choose(counts)
        yield best
        # subtle: a list, because updating the counts changes the set
        for i in list(words_with[best]):
            subtract_pairs_of(i)
            tokens_of[i] = merge_pair(tokens_of[i], best)
            add_pairs_of(i)
