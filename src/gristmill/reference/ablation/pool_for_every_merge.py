"""(b) A process pool for every merge, with one task per word.

The counting step of (a) is a sum over words, so its parts can run on several cores. This is the first version that
comes to mind: open a pool, map a function over the words, add up the results, and close the pool again.

Cost: much more than it saves. Every merge starts and stops all processes. Every task pickles one word, sends it through
a pipe and receives a dictionary, which takes far longer than counting the few pairs of the word.

Next: (c) starts the processes once.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Mapping

from gristmill.reference.ablation.naive import choose, count_pairs, split_into_bytes
from gristmill.reference.pipeline import Pair, Word, merge_pair

# A forked process starts in milliseconds; one that is spawned imports everything again. macOS and Windows need "spawn".
PROCESSES = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


def learn_merges(words: Mapping[bytes, int], num_processes: int = 2) -> Iterator[Pair]:
    """Yield merges until no pair is left."""
    tokens_of = split_into_bytes(words)
    weights = list(words.values())
    while True:
        with PROCESSES.Pool(num_processes) as pool:
            tasks = zip(tokens_of, weights, strict=True)
            counts = add_up(pool.map(count_pairs_of_word, tasks, chunksize=1))
        if not counts:
            return
        best = choose(counts)
        yield best
        tokens_of = [merge_pair(tokens, best) for tokens in tokens_of]


def count_pairs_of_word(task: tuple[Word, int]) -> dict[Pair, int]:
    """Return the pair counts of one word. Runs in a process of the pool."""
    return count_pairs([task])


def add_up(partial_counts: Iterable[Mapping[Pair, int]]) -> dict[Pair, int]:
    """Return the sum of pair counts.

    >>> add_up([{(b"a", b"b"): 1}, {(b"a", b"b"): 2, (b"b", b"c"): 1}])
    {(b'a', b'b'): 3, (b'b', b'c'): 1}
    """
    total: dict[Pair, int] = {}
    for counts in partial_counts:
        for pair, count in counts.items():
            total[pair] = total.get(pair, 0) + count
    return total
