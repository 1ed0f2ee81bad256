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
import traceback
from typing import IO, Any, TypeAlias

from gristmill.errors import GristmillError, WorkerError
from gristmill.pretokenize import pieces

# How often a worker that matches looks at the clock and for its parent.
ALARM_SECONDS = 0.5

READY = b"\0gristmill worker\n"

# The module and the name of its class, its arguments and its attributes.
PackedError: TypeAlias = tuple[str, str, tuple[object, ...], dict[str, Any]]
_PLAIN = (str, bytes, int, float, type(None))


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


def pack_error(error: BaseException) -> PackedError:
    """An error as plain values: those of Gristmill with their attributes, and those of the operating system."""
    kind = type(error)
    if isinstance(error, GristmillError):
        attributes = {name: value for name, value in vars(error).items() if isinstance(value, _PLAIN)}
        return kind.__module__, kind.__name__, _plain_arguments(error), attributes
    if isinstance(error, OSError) and error.errno is not None:
        return "builtins", "OSError", _plain_arguments(error), {}
    if isinstance(error, OSError | MemoryError):
        return "builtins", "OSError" if isinstance(error, OSError) else "MemoryError", (str(error),), {}
    message = f"a worker process failed: {kind.__name__}: {error}"
    return WorkerError.__module__, "WorkerError", (message,), {"__notes__": traceback.format_exception(error)[-3:]}


def unpack_error(module: str, name: str, arguments: tuple[object, ...], attributes: dict[str, Any]) -> Exception:
    """The error that `pack_error` packed."""
    known = {"OSError": OSError, "MemoryError": MemoryError}
    if module == "builtins":
        error: Exception = known[name](*arguments)
        return error
    assert module.startswith("gristmill."), module
    kind = getattr(importlib.import_module(module), name)
    assert issubclass(kind, GristmillError), name
    error = kind.__new__(kind, *arguments)  # not by its constructor, which may want the attributes
    error.__dict__.update(attributes)
    return error


def _plain_arguments(error: BaseException) -> tuple[object, ...]:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno, error.strerror, error.filename  # its `args` lack the name of the file
    is_plain = all(isinstance(argument, _PLAIN) for argument in error.args)
    return error.args if is_plain else (str(error),)


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
    if hasattr(signal, "SIGALRM"):
        _alarm.parent = os.getppid()
        signal.signal(signal.SIGALRM, _alarm)
    try:
        answers.write(READY)  # what was printed before, such as by a sitecustomize, ends here
        answers.flush()
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
