"""(g) Count the words of several chunks of the file in parallel.

The file is divided into chunks that start at `<|endoftext|>`, so no word and no document crosses a chunk boundary. Each
task is three values: the path and the two ends of a chunk. The process reads the chunk from the file itself, and sends
back only the counts of its distinct words. The merge loop is that of (f).

Cost: counting takes 1/n of the time on n cores, plus the time to start the pool and to add up the counts. The file must
contain `<|endoftext|>`; a single document is a single chunk. The merge loop is still serial, and every piece is still a
Python object.

Next: (h), the native core, does the same work on bytes, with threads that share one memory.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from gristmill.reference.ablation import naive
from gristmill.reference.ablation.pool_for_every_merge import PROCESSES

CHUNKS_PER_PROCESS = 4  # small chunks at the end keep all processes busy, and need less memory
BLOCK_BYTES = 4096


def count_words(path: Path, num_processes: int = 2) -> dict[bytes, int]:
    """Return the words of the file with their counts, in order of first occurrence."""
    boundaries = find_chunk_boundaries(path, num_processes * CHUNKS_PER_PROCESS)
    tasks = [(path, start, end) for start, end in pairwise(boundaries)]
    words: dict[bytes, int] = {}
    with PROCESSES.Pool(num_processes) as pool:
        # `imap` returns the chunks in order, so the words stay in order of first occurrence.
        for counts in pool.imap(count_words_of_chunk, tasks):
            for word, count in counts.items():
                words[word] = words.get(word, 0) + count
    return words


def find_chunk_boundaries(path: Path, num_chunks: int) -> list[int]:
    """Return positions in ascending order: 0, starts of `<|endoftext|>`, and the size of the file.

    The chunks have similar sizes. There are fewer than `num_chunks` if the file has too few documents.
    """
    size = path.stat().st_size
    guesses = [size * i // num_chunks for i in range(1, num_chunks)]
    return sorted({0, size, *(find_special(path, guess, size) for guess in guesses)})


def find_special(path: Path, position: int, size: int) -> int:
    """Return the start of the first `<|endoftext|>` at or after `position`, or `size` if it does not occur.

    Two copies of this special token cannot overlap, so one found from the middle of the file is also one of the special
    tokens that a reader finds from the beginning.
    """
    special = naive.SPECIAL.encode()
    with path.open("rb") as file:
        file.seek(position)
        data = b""
        while block := file.read(BLOCK_BYTES):
            data += block
            if (found := data.find(special)) != -1:
                return position + found
            # subtle: the block may end in the middle of a special token, so its last bytes are searched again
            kept = data[-(len(special) - 1) :]
            position += len(data) - len(kept)
            data = kept
    return size


def count_words_of_chunk(task: tuple[Path, int, int]) -> dict[bytes, int]:
    """Return the words of the bytes from `start` to `end` of a file. Runs in a process of the pool."""
    path, start, end = task
    with path.open("rb") as file:
        file.seek(start)
        return naive.count_words_of(file.read(end - start))
