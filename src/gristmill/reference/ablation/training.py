"""`train`: run one of the programs on a file and time its stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gristmill.reference.pipeline import Pair


@dataclass(frozen=True)
class Program:
    """A program as its two stages: words of a file, and merges of words."""

    letter: str
    name: str
    count_words: Callable[[Path, int], dict[bytes, int]]  # (path, number of processes)
    learn_merges: Callable[[Mapping[bytes, int], int], Iterator[Pair]]  # (words, number of processes)
    is_exact: bool = True


@dataclass(frozen=True)
class Training:
    """The merges of one run, and the time of its stages."""

    merges: list[Pair]
    pretokenize_seconds: float
    merge_seconds: list[float]  # one time per merge; the first includes the setup
    is_complete: bool  # False if the time limit came before the last merge


def train(
    program: Program,
    path: Path,
    vocab_size: int,
    *,
    num_processes: int = 2,
    time_limit: float | None = None,
    words: Mapping[bytes, int] | None = None,
) -> Training:
    """Train on the file at `path`: 256 bytes, `<|endoftext|>` and merges, together `vocab_size` tokens.

    Learning stops after the first merge that ends later than `time_limit` seconds after the first merge began. `words`
    replaces the first stage by words that are already counted; its time is then 0.
    """
    start = time.perf_counter()
    if words is None:
        words = program.count_words(path, num_processes)
        pretokenize_seconds = time.perf_counter() - start
    else:
        pretokenize_seconds = 0.0

    num_merges = max(0, vocab_size - 256 - 1)
    merges: list[Pair] = []
    merge_seconds: list[float] = []
    learned = cast(Generator[Pair, None, None], program.learn_merges(words, num_processes))
    start_of_merges = last = time.perf_counter()
    is_complete = True
    with closing(learned):  # ends the processes of a pool
        while len(merges) < num_merges:
            if time_limit is not None and merges and last - start_of_merges > time_limit:
                is_complete = False
                break
            pair = next(learned, None)
            if pair is None:
                break
            now = time.perf_counter()
            merges.append(pair)
            merge_seconds.append(now - last)
            last = now
    return Training(merges, pretokenize_seconds, merge_seconds, is_complete)
