"""The worker process of `regex_pool`: counts the pieces of the documents that come in on its standard input.

Tasks and answers are plain values, sent with `marshal`: it is quick, the parent is the same Python, and nothing of it
is ever executed. The process ends when its input does, and so also when the parent was killed.
"""

from __future__ import annotations

import marshal
import os
import signal
import sys
from collections import Counter
from dataclasses import astuple, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

from gristmill import errors
from gristmill.errors import GristmillError, InputChangedError
from gristmill.pretokenize import pieces as pretokenize

# word -> (count, corpus position of its first occurrence), in the order of first occurrence
Counts = dict[bytes, tuple[int, int]]
Signature = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Task:
    """A stretch of the corpus and the documents in it."""

    position: int  # of the stretch in the corpus
    num_bytes: int
    documents: list[tuple[int, int]]  # (start, end) in the stretch
    data: bytes | None  # the stretch itself; None for one that lies in a file
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
        pieces = _cut(document, regex, task.name_of(i))
        counts.update(pieces)
        lengths = map(len, pieces if document.isascii() else map(pretokenize.to_bytes, pieces))
        for piece, position in zip(pieces, accumulate(lengths, initial=task.position + start), strict=False):
            if piece not in firsts:
                firsts[piece] = position
    return {pretokenize.to_bytes(piece): (count, firsts[piece]) for piece, count in counts.items()}


def _cut(document: bytes, regex: str, name: str) -> list[str]:
    """The pieces of `document`, within its time: `regex` heeds signals, and an alarm costs nothing until it rings."""
    seconds = pretokenize.time_limit(document)
    try:
        if not hasattr(signal, "setitimer"):
            return pretokenize.cut_into_pieces(document, regex, timeout=seconds)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return pretokenize.cut_into_pieces(document, regex)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeoutError:
        raise pretokenize.too_slow(regex, document, name) from None


def _ring(*_: object) -> None:
    raise TimeoutError


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


def send(message: Any, stream: IO[bytes]) -> None:
    """Write one message of plain values."""
    marshal.dump(message, stream)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; EOFError where there is none, or only a part of one."""
    try:
        return marshal.load(stream)
    except (ValueError, TypeError) as error:
        raise EOFError(str(error)) from None


def pack_error(error: Exception) -> tuple[str, tuple[object, ...]]:
    """An error as plain values."""
    if isinstance(error, OSError) and not isinstance(error, GristmillError):
        return "OSError", (error.errno, error.strerror, error.filename)
    if isinstance(error, MemoryError):
        return "MemoryError", (str(error),)
    if isinstance(error, GristmillError):
        return type(error).__name__, (str(error),)
    return "WorkerError", (f"a worker process failed: {type(error).__name__}: {error}",)


def unpack_error(name: str, arguments: tuple[object, ...]) -> Exception:
    """The error that `pack_error` packed."""
    known = {"OSError": OSError, "MemoryError": MemoryError} | {name: getattr(errors, name) for name in errors.__all__}
    error: Exception = known[name](*arguments)
    return error


def main() -> None:
    """Answer tasks until there are no more, or nobody is left to answer."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints must not end up among the answers
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _ring)
    try:
        _answer(sys.stdin.buffer, answers)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # not even a flush: the other end is gone


def _answer(tasks: IO[bytes], answers: IO[bytes]) -> None:
    regex, pretokenize.TIMEOUT_SECONDS, pretokenize.TIMEOUT_SECONDS_PER_MB = receive(tasks)
    while True:
        task = Task(*receive(tasks))
        try:
            counts, failure = count_words(task, regex), None
        except Exception as error:
            counts, failure = {}, pack_error(error)
        send((counts, failure), answers)
