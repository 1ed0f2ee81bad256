"""(d) One process pool, with one batch of words per process instead of one task per word.

What is batched: the words of a task. In (c) a task is one word. Here the words are divided into as many batches as
there are processes, and a task counts the pairs of a whole batch and returns one sum. So a merge sends one message per
process instead of one per word. Choosing the pair and replacing it stay in the main process, as in (b) and (c).

Cost: all words still travel to the processes for every merge. The main process pickles every token, which takes about
as long as counting its pairs, so the pool gains nothing, however many cores there are.

Next: (e) has fewer words to send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gristmill.reference.ablation.naive import choose, count_pairs, split_into_bytes
from gristmill.reference.ablation.pool_for_every_merge import PROCESSES, add_up
from gristmill.reference.pipeline import Pair, Word, merge_pair

Batch = tuple[Sequence[Word], Sequence[int]]  # the tokens and the count of each word


def learn_merges(words: Mapping[bytes, int], num_processes: int = 2) -> Iterator[Pair]:
    """Yield merges until no pair is left."""
    tokens_of = split_into_bytes(words)
    weights = list(words.values())
    with PROCESSES.Pool(num_processes) as pool:
        while counts := add_up(pool.map(count_pairs_of_batch, divide(tokens_of, weights, num_processes), chunksize=1)):
            best = choose(counts)
            yield best
            tokens_of = [merge_pair(tokens, best) for tokens in tokens_of]


def divide(tokens_of: Sequence[Word], weights: Sequence[int], num_batches: int) -> list[Batch]:
    """Return the words in `num_batches` batches. Every n-th word is in the same batch, so the batches take equal time.

    >>> divide([[b"a"], [b"b"], [b"c"]], [5, 3, 1], 2)
    [([[b'a'], [b'c']], [5, 1]), ([[b'b']], [3])]
    """
    return [(tokens_of[i::num_batches], weights[i::num_batches]) for i in range(num_batches)]


def count_pairs_of_batch(batch: Batch) -> dict[Pair, int]:
    """Return the pair counts of a batch. Runs in a process of the pool."""
    return count_pairs(zip(*batch, strict=True))
