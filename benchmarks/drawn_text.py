"""Large inputs from a small corpus: text of any size, and tables with any number of distinct words.

Text: the words of the corpus, drawn by their counts in random order. It has more distinct words than real text of the
same size, because neighbours form new pieces, and no burstiness, so it is hard for every trainer.

Words: rare words of the corpus are cut in two and joined with other halves, with the counts of the rare words.
"""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gristmill import Words
from gristmill._core import WordTable
from gristmill.bench.machine import num_cores
from gristmill.publish import publish

BLOCK_BYTES = 64 << 20
RARE = 8  # occurrences, at most


def write_drawn_text(words: Words, path: Path, num_bytes: int) -> None:
    """Write `num_bytes` of text. The same words give the same text on every machine."""
    table = words.table
    sizes = [min(BLOCK_BYTES, num_bytes - begin) for begin in range(0, num_bytes, BLOCK_BYTES)]
    # Forked, so that the processes share the table.
    with multiprocessing.get_context("fork").Pool(num_cores(), _share, (table,)) as pool, publish(path) as file:
        for block in pool.imap(_drawn, enumerate(sizes)):
            file.write(block)


def recombined_words(words: Words, num_words: int, seed: int = 0) -> Words:
    """Return `words`, and new ones made of halves of its rare words, `num_words` in all."""
    draw = np.random.default_rng(seed)
    table = words.table
    lengths = np.diff(table.offsets).astype(np.int64)
    rare = np.flatnonzero((table.counts <= RARE) & (lengths >= 4))
    data, offsets, counts = table.data.tobytes(), table.offsets.tolist(), table.counts.tolist()
    made = {data[offsets[i] : offsets[i + 1]]: counts[i] for i in range(len(table))}
    while len(made) < num_words:
        for left, right in draw.choice(rare, (min(num_words - len(made), 1 << 16), 2)).tolist():
            cut = offsets[left] + (offsets[left + 1] - offsets[left]) // 2
            begin = offsets[right] + (offsets[right + 1] - offsets[right]) // 2
            made.setdefault(data[offsets[left] : cut] + data[begin : offsets[right + 1]], counts[left])
    return Words.from_counts(made, pattern=words.pattern, special_tokens=words.special_tokens)


_shared: WordTable


def _share(table: WordTable) -> None:
    global _shared
    _shared = table


def _drawn(job: tuple[int, int]) -> bytes:
    number, num_bytes = job
    draw = np.random.default_rng(number)
    lengths = np.diff(_shared.offsets).astype(np.int64)
    ends = np.cumsum(_shared.counts.astype(np.int64))
    mean = float((lengths * _shared.counts).sum() / ends[-1])
    parts = []
    while num_bytes > 0:
        chosen = np.searchsorted(ends, draw.integers(0, ends[-1], int(num_bytes / mean) + 1), side="right")
        part = _joined(chosen, lengths)[:num_bytes]
        parts.append(part.tobytes())
        num_bytes -= len(part)
    return b"".join(parts)


def _joined(chosen: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the bytes of these words, one after the other."""
    sizes = lengths[chosen]
    begins = np.cumsum(sizes) - sizes
    places = np.repeat(_shared.offsets[chosen].astype(np.int64) - begins, sizes) + np.arange(int(sizes.sum()))
    return _shared.data[places]


def read_into_page_cache(path: Path) -> None:
    """Read a file, so that the next reader finds it in memory."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        for _ in _blocks(file):
            pass


def _blocks(file: object) -> Iterator[int]:
    buffer = bytearray(8 << 20)
    while num := file.readinto(buffer):  # type: ignore[attr-defined]
        yield num
