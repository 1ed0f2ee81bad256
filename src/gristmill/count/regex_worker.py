"""The code of a worker process of `regex_counting`, which counts the pieces of documents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from gristmill.errors import InputChangedError
from gristmill.pretokenize.pieces import to_bytes
from gristmill.pretokenize.worker import cut_within_time

# word -> (count, position of its first occurrence in the corpus), in order of first occurrence
Counts = dict[bytes, tuple[int, int]]
Signature = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Task:
    """A span of the corpus and the documents in it."""

    position: int  # of the span in the corpus
    num_bytes: int  # of text
    documents: list[tuple[int, int]]  # (start, end) in the span
    data: bytes | None  # the text of the span; None if it is in a file
    starts: list[int]  # start of each document in the text of the span, which does not include separators
    numbers: list[int] = field(default_factory=list)  # index of each document's item in the iterable
    path: str = ""
    offset: int = 0  # of the span in the file
    signature: Signature | None = None

    def pack(self) -> tuple[Any, ...]:
        """Return the task as plain values. `Task(*values)` restores it."""
        return astuple(self)

    def name_of(self, i: int) -> str:
        """Return the description of document i, for messages."""
        if self.data is not None:
            return f"document {self.numbers[i]} of the corpus"
        start, end = self.documents[i]
        return f"{self.path}, bytes {self.offset + start} to {self.offset + end}"


def count_words(task: Task, regex: str) -> Counts:
    """Return the words of the documents of a task."""
    data = _read(task) if task.data is None else task.data
    counts: Counter[str] = Counter()
    firsts: dict[str, int] = {}
    for i, (start, end) in enumerate(task.documents):
        document = data[start:end]
        pieces = cut_within_time(document, regex, task.name_of(i))
        counts.update(pieces)
        lengths = map(len, pieces if document.isascii() else map(to_bytes, pieces))
        for piece, position in zip(pieces, accumulate(lengths, initial=task.position + task.starts[i]), strict=False):
            if piece not in firsts:
                firsts[piece] = position
    return {to_bytes(piece): (count, firsts[piece]) for piece, count in counts.items()}


def signature_of(status: os.stat_result) -> Signature:
    """Return values that change when a file is written to or replaced."""
    return status.st_size, status.st_mtime_ns, status.st_ino


def _read(task: Task) -> bytes:
    with Path(task.path).open("rb") as file:
        file.seek(task.offset)
        data = file.read(task.num_bytes)
        if signature_of(os.fstat(file.fileno())) != task.signature:
            raise InputChangedError(f"{task.path}: changed while it was read. Run again when the file is complete.")
    return data


def serve(regex: str) -> Callable[..., Counts]:
    """Return the function that answers requests: a packed task -> its words."""
    return lambda *task: count_words(Task(*task), regex)
