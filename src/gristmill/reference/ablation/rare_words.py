"""(e) Drop rare words before the first merge. **Not exact**: the merges may differ.

In natural text most words are rare and most of the corpus consists of few frequent words. Words that occur fewer than
`MIN_COUNT` times are dropped; the merge loop is that of (d).

Cost: correctness. A pair in rare words loses their part of its count, so it is merged later or never, and the order of
close pairs changes. The first merges have large counts and rarely change. The differences grow towards the end of a
large vocabulary, where the counts of the pairs come close to `MIN_COUNT`.

Next: (f) is so much faster that it keeps all words.
"""

from __future__ import annotations

from pathlib import Path

from gristmill.reference.ablation import naive

MIN_COUNT = 10


def count_words(path: Path, num_processes: int = 1) -> dict[bytes, int]:
    """Return the words of the file that occur at least `MIN_COUNT` times."""
    return drop_rare(naive.count_words(path))


def drop_rare(words: dict[bytes, int]) -> dict[bytes, int]:
    """Return the words that occur at least `MIN_COUNT` times.

    >>> drop_rare({b"low": 10, b"lower": 9})
    {b'low': 10}
    """
    return {word: count for word, count in words.items() if count >= MIN_COUNT}
