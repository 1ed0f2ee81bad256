"""A worker process of `WorkerPool`: answers requests that come in on its standard input.

Requests and answers are plain values, sent with `marshal`: it is fast, the parent is the same Python, and nothing of it
is executed. The process ends when its input does, and so also when the parent was killed; while it matches, an alarm
looks for the parent.
"""

from __future__ import annotations

import importlib
import marshal
import os
import signal
import sys
import time
from typing import IO, Any

from gristmill import errors
from gristmill.errors import GristmillError
from gristmill.pretokenize import pieces

# How often a worker that matches looks at the clock and for its parent.
ALARM_SECONDS = 0.5

READY = b"\0gristmill worker\n"


def send(message: Any, stream: IO[bytes]) -> None:
    """Write one message of plain values, whole or not at all."""
    stream.write(marshal.dumps(message))
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


def cut_within_time(document: bytes, regex: str, name: str) -> list[str]:
    """The pieces of `document`, within its time limit; `PieceTimeoutError`, with `name`, beyond it.

    For the main thread of a worker: `regex` heeds signals, and an alarm costs nothing until it rings, while a `timeout`
    makes matching three times slower.
    """
    seconds = pieces.time_limit(document)
    if not hasattr(signal, "setitimer"):
        return pieces.cut_with_timeout(document, regex, name)
    _alarm.deadline = time.monotonic() + seconds
    try:
        signal.setitimer(signal.ITIMER_REAL, min(seconds, ALARM_SECONDS), ALARM_SECONDS)
        try:
            return pieces.cut_into_pieces(document, regex)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeoutError:
        raise pieces.too_slow(regex, document, name) from None


class _Alarm:
    """What happens every ALARM_SECONDS while the worker matches, on its only thread: `regex` lets no other one run."""

    deadline = 0.0
    parent = 0  # the process that started this one

    def __call__(self, *_: object) -> None:
        if os.getppid() != self.parent:
            os._exit(0)  # it was killed: nobody waits for the answer, and an endless expression would be left running
        if time.monotonic() >= self.deadline:
            raise TimeoutError


_alarm = _Alarm()


def main() -> None:
    """Answer requests until there are no more, or nobody is left to answer."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints must not end up among the answers
    answers.write(READY)  # what was printed before, such as by a sitecustomize, ends here
    answers.flush()
    if hasattr(signal, "SIGALRM"):
        _alarm.parent = os.getppid()
        signal.signal(signal.SIGALRM, _alarm)
    try:
        _serve(sys.stdin.buffer, answers)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # not even a flush: the other end is gone


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    module, settings, (pieces.TIMEOUT_SECONDS, pieces.TIMEOUT_SECONDS_PER_MB) = receive(requests)
    answer_to = importlib.import_module(module).serve(*settings)
    while True:
        request = receive(requests)
        try:
            reply = marshal.dumps((answer_to(*request), None))
        except Exception as error:
            failure: Any = pack_error(error)
            reply = marshal.dumps((None, failure))
        answers.write(reply)
        answers.flush()
