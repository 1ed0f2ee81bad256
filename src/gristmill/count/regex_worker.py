"""What a worker process of `regex_counting` does: it counts the pieces of documents."""

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

# word -> (count, corpus position of its first occurrence), in the order of first occurrence
Counts = dict[bytes, tuple[int, int]]
Signature = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Task:
    """A stretch of the corpus and the documents in it."""

    position: int  # of the stretch in the corpus
    num_bytes: int  # of text
    documents: list[tuple[int, int]]  # (start, end) in the stretch
    data: bytes | None  # the stretch itself; None for one that lies in a file
    starts: list[int]  # of the documents in the text of the stretch, which separators are no part of
    numbers: list[int] = field(default_factory=list)  # which item of the iterable each document is from
    path: str = ""
    offset: int = 0  # of the stretch in the file
    signature: Signature | None = None

    def pack(self) -> tuple[Any, ...]:
        """The task as plain values; `Task(*values)` is the way back."""
        return astuple(self)

    def name_of(self, i: int) -> str:
        """Document i, for messages."""
        if self.data is not None:
            return f"document {self.numbers[i]} of the corpus"
        start, end = self.documents[i]
        return f"{self.path}, bytes {self.offset + start} to {self.offset + end}"


def count_words(task: Task, regex: str) -> Counts:
    """The words of the documents of a task."""
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
    """What differs when a file was written to or replaced."""
    return status.st_size, status.st_mtime_ns, status.st_ino


def _read(task: Task) -> bytes:
    with Path(task.path).open("rb") as file:
        file.seek(task.offset)
        data = file.read(task.num_bytes)
        if signature_of(os.fstat(file.fileno())) != task.signature:
            raise InputChangedError(f"{task.path}: changed while it was read. Train again when it is complete.")
    return data


def serve(regex: str) -> Callable[..., Counts]:
    """The function that answers requests: a packed task -> its words."""
    return lambda *task: count_words(Task(*task), regex)
