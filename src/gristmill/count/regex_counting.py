"""Count words with patterns without a native matcher: worker processes, started once, use the `regex` module.

Text is cut only at special tokens: a user's expression may match across any other position. A document must fit in
memory, and one worker counts it. Workers read plain text files themselves; the readers of `gristmill.corpus` read all
others in this process.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gristmill._core import WordTable
from gristmill.corpus import FoundFiles, Reading, Source, read_files
from gristmill.corpus.batches import Batch, Buffer, Cutting
from gristmill.corpus.files import are_plain_texts
from gristmill.corpus.threads import OnSkip, map_in_order
from gristmill.count.regex_worker import Counts, Signature, Task, signature_of
from gristmill.count.words import build_table
from gristmill.errors import CorpusError, MemoryLimitError
from gristmill.pretokenize.worker_pool import WorkerPool
from gristmill.progress import OnProgress

TASK_BYTES = 4 << 20
BLOCK_BYTES = 1 << 20
# Workers are much slower than readers.
MAX_READERS = 2
# Memory of an entry of the table of words in Python, without the bytes of the word.
ENTRY_BYTES = 250


def count_by_regex(
    source: Source,
    *,
    reading: Reading,
    on_skip: OnSkip,
    regex: str,
    special_tokens: Iterable[str],
    num_threads: int,
    memory_limit: int | None,
    on_progress: OnProgress | None,
) -> WordTable:
    """Return the words of `source` with any regular expression. The result does not depend on the number of workers."""
    specials = Specials(special_tokens)
    if isinstance(source, FoundFiles) and are_plain_texts(source, reading):
        tasks, total = _tasks_of_files(source, specials, reading.max_document_bytes), source.num_bytes
    elif isinstance(source, FoundFiles):
        tasks, total = _tasks_of_inputs(source, specials, reading, on_skip, min(num_threads, MAX_READERS)), 0
    else:
        tasks, total = _tasks_of_batches(source.read_batches(TASK_BYTES), specials), 0
    return _count(tasks, regex, num_threads, memory_limit, on_progress, total)


def count_batches_by_regex(
    batches: Iterable[Batch],
    *,
    regex: str,
    special_tokens: Iterable[str],
    memory_limit: int | None,
    on_progress: OnProgress | None,
) -> WordTable:
    """Return the words of one part of a corpus, counted by one worker."""
    tasks = _tasks_of_batches(batches, Specials(special_tokens))
    return _count(tasks, regex, 1, memory_limit, on_progress, 0)


def _count(
    tasks: Generator[Task, None, None],
    regex: str,
    num_threads: int,
    memory_limit: int | None,
    on_progress: OnProgress | None,
    total: int,
) -> WordTable:
    words: dict[bytes, int] = {}
    firsts: list[int] = []
    done = table_bytes = 0
    with (
        contextlib.closing(tasks),
        WorkerPool("gristmill.count.regex_worker", (regex,), num_threads) as pool,
        contextlib.closing(_count_tasks(tasks, pool, num_threads)) as counted,
    ):
        for done, counts in counted:
            for word, (count, first) in counts.items():
                if word in words:
                    words[word] += count
                else:
                    words[word] = count
                    firsts.append(first)
                    table_bytes += ENTRY_BYTES + len(word)
            if memory_limit is not None and table_bytes > memory_limit:
                raise MemoryLimitError(
                    f"memory_limit={memory_limit} is too small: the {len(words):,} words of the first {done:,} bytes "
                    f"need more, and only native patterns can spill words to disk. Pass a larger memory_limit."
                )
            if on_progress is not None:
                on_progress("count", done, total)
    return build_table(words, num_bytes=done, firsts=np.array(firsts, np.uint64))


def _count_tasks(
    tasks: Iterable[Task], pool: WorkerPool, num_workers: int
) -> Generator[tuple[int, Counts], None, None]:
    """Yield (position in the corpus, words) of each task, in order. A few more tasks than workers are in progress."""

    def ask(task: Task) -> tuple[int, Counts]:
        return task.position + task.num_bytes, pool.ask(*task.pack())

    return map_in_order(ask, tasks, num_threads=num_workers, cancel=pool.stop)


class Specials:
    """Finds special tokens: the leftmost first, then the longest."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        longest_first = sorted((special.encode() for special in special_tokens), key=len, reverse=True)
        self.longest = len(longest_first[0]) if longest_first else 1
        # (?!) matches nowhere
        self.regex = re.compile(b"|".join(map(re.escape, longest_first)) or b"(?!)")

    def find_in(self, text: bytes, begin: int = 0, end: int = sys.maxsize) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of each special token in `text[begin:end]`."""
        return (match.span() for match in self.regex.finditer(text, begin, end))

    @property
    def cutting(self) -> Cutting:
        """Where a planner may cut a document: after a special token that is one whatever precedes it."""
        return Cutting(self.last_certain_cut, 2 * self.longest)

    def last_certain_cut(self, text: Buffer, start: int) -> int:
        """Return the end, after `start`, of a special token that is one whatever surrounds `text`; 0 if not found.

        A match that begins inside another one may not be a special token, so only matches count that no earlier one
        overlaps.
        """
        cut = 0
        data = bytes(text)
        at = max(0, start - 2 * self.longest)
        reached = at + self.longest - 1  # the furthest end of a special token that begins before `at`
        while (match := self.regex.search(data, at)) is not None:
            begin, end = match.span()
            if begin + self.longest > len(data):
                break
            if begin >= reached and end > start:
                cut = end
            reached, at = max(reached, end), begin + 1
        return cut

    def last_cut(self, text: Buffer) -> int:
        """Return the end of the last special token in `text` that is one whatever follows; 0 if not found."""
        cut = 0
        data = bytes(text)
        for start, end in self.find_in(data):
            if start + self.longest <= len(data):  # it cannot be the beginning of a longer special token
                cut = end
        return cut

    def find_in_file(self, file: BinaryIO) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of each special token in `file`. At most about a block is in memory."""
        data, position, at_end = b"", 0, False
        while not at_end:
            block = file.read(BLOCK_BYTES)
            at_end = not block
            data += block
            # A match in the last bytes may be the beginning of a longer special token, so it waits for the next block.
            limit = len(data) if at_end else max(0, len(data) - self.longest + 1)
            done = limit
            for start, end in self.find_in(data):
                if start >= limit:
                    break
                yield position + start, position + end
                done = max(limit, end)
            data, position = data[done:], position + done


def _between(specials: Iterable[tuple[int, int]], begin: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the documents of a text from `begin` on, which are separated by `specials`."""
    for start, end in specials:
        yield begin, start
        begin = end
    yield begin, size


def _tasks_of_inputs(
    source: FoundFiles, specials: Specials, reading: Reading, on_skip: OnSkip, num_readers: int
) -> Generator[Task, None, None]:
    batches = read_files(source, reading, cut=specials.last_cut, num_readers=num_readers, on_skip=on_skip)
    with contextlib.closing(batches):
        yield from _tasks_of_batches((batch for _, batch in batches), specials)


def _tasks_of_batches(batches: Iterable[Batch], specials: Specials) -> Generator[Task, None, None]:
    """Yield a task for every batch."""
    position = number = 0
    for batch in batches:
        spans = batch.spans()
        if len(spans.begins) == 0:
            continue
        offset, end = int(spans.begins[0]), int(spans.ends[-1])
        data = bytes(spans.text[offset:end])
        documents: list[tuple[int, int]] = []
        starts: list[int] = []
        numbers: list[int] = []
        number -= spans.continued
        num_bytes = 0
        for start, stop in zip((spans.begins - offset).tolist(), (spans.ends - offset).tolist(), strict=True):
            inside = list(_between(specials.find_in(data, start, stop), start, stop))
            documents += inside
            # Positions count only text, as in the native counter, so they do not depend on the batches.
            starts += [num_bytes + begin - start for begin, _ in inside]
            numbers += [number] * len(inside)
            number += 1
            num_bytes += stop - start
        yield Task(position, num_bytes, documents, data, starts, numbers)
        position += num_bytes


def _tasks_of_files(source: FoundFiles, specials: Specials, max_document_bytes: int) -> Generator[Task, None, None]:
    position = 0
    for path in source.paths:
        with Path(path).open("rb") as file:
            signature = signature_of(os.fstat(file.fileno()))
            documents: list[tuple[int, int]] = []
            for start, end in _between(specials.find_in_file(file), 0, signature[0]):
                if end - start > max_document_bytes:
                    raise CorpusError(
                        f"{path}: the document at byte {start:,} has {end - start:,} bytes, more than "
                        f"max_document_bytes={max_document_bytes}. A pattern without a native matcher needs the whole "
                        f"document in memory. Pass a larger max_document_bytes, or add the separator of documents to "
                        f"special_tokens."
                    )
                if documents and end - documents[0][0] > TASK_BYTES:
                    yield _file_task(position, path, signature, documents)
                    documents = []
                documents.append((start, end))
            yield _file_task(position, path, signature, documents)
        position += signature[0]


def _file_task(position: int, path: str, signature: Signature, documents: list[tuple[int, int]]) -> Task:
    offset, end = documents[0][0], documents[-1][1]
    inside = [(start - offset, stop - offset) for start, stop in documents]
    starts = [start for start, _ in inside]
    return Task(position + offset, end - offset, inside, None, starts, path=path, offset=offset, signature=signature)
