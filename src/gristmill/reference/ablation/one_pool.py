"""(c) One process pool for all merges, still with one task per word.

The processes start once, before the first merge. The rest is (b).

Cost: the time per task remains: pickling, two pipes and a lock for every word and every merge. The main process does
this work for all words, so more processes do not help.

Next: (d) sends many words in one task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gristmill.reference.ablation.naive import choose, split_into_bytes
from gristmill.reference.ablation.pool_for_every_merge import PROCESSES, add_up, count_pairs_of_word
from gristmill.reference.pipeline import Pair, merge_pair


def learn_merges(words: Mapping[bytes, int], num_processes: int = 2) -> Iterator[Pair]:
    """Yield merges until no pair is left."""
    tokens_of = split_into_bytes(words)
    weights = list(words.values())
    with PROCESSES.Pool(num_processes) as pool:
        while counts := add_up(pool.map(count_pairs_of_word, zip(tokens_of, weights, strict=True), chunksize=1)):
            best = choose(counts)
            yield best
            tokens_of = [merge_pair(tokens, best) for tokens in tokens_of]
