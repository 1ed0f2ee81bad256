"""A worker process of `WorkerPool`, which answers requests on its standard input.

Requests and answers are plain values, sent with `marshal`: it is fast, the parent is the same Python, and no received
code is executed. The process ends when its input ends, which also happens when the parent is killed. During a long
match, an alarm checks that the parent is alive.
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

# How often a worker checks the time limit and its parent during a match.
ALARM_SECONDS = 0.5

READY = b"\0gristmill worker\n"

# Module and name of the class, arguments, attributes.
PackedError: TypeAlias = tuple[str, str, tuple[object, ...], dict[str, Any]]
_PLAIN = (str, bytes, int, float, type(None))


def send(message: Any, stream: IO[bytes]) -> None:
    """Write one message of plain values."""
    stream.write(marshal.dumps(message))
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message. Raises EOFError at the end of the stream, or inside a message."""
    try:
        return marshal.load(stream)
    except (ValueError, TypeError) as error:
        raise EOFError(str(error)) from None


def pack_error(error: BaseException) -> PackedError:
    """Return an error as plain values. Gristmill's errors keep their attributes, and OSErrors their file name."""
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
    """Return the error that `pack_error` packed."""
    known = {"OSError": OSError, "MemoryError": MemoryError}
    if module == "builtins":
        error: Exception = known[name](*arguments)
        return error
    assert module.startswith("gristmill."), module
    kind = getattr(importlib.import_module(module), name)
    assert issubclass(kind, GristmillError), name
    error = kind.__new__(kind, *arguments)  # without __init__, which may require the attributes
    error.__dict__.update(attributes)
    return error


def _plain_arguments(error: BaseException) -> tuple[object, ...]:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno, error.strerror, error.filename  # `args` does not include the file name
    is_plain = all(isinstance(argument, _PLAIN) for argument in error.args)
    return error.args if is_plain else (str(error),)


def cut_within_time(document: bytes, regex: str, name: str) -> list[str]:
    """Return the pieces of `document`. Raises PieceTimeoutError, which names `name`, after its time limit.

    Call it on the main thread of a worker. `regex` checks for signals, and an alarm costs nothing until it fires, while
    a `timeout` makes matching three times slower.
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
    """Signal handler, called every ALARM_SECONDS during a match. Threads cannot run: `regex` holds the GIL."""

    deadline = 0.0
    parent = 0  # the process that started this one

    def __call__(self, *_: object) -> None:
        if os.getppid() != self.parent:
            os._exit(0)  # the parent was killed, so no process waits for the answer, and the match might never end
        if time.monotonic() >= self.deadline:
            raise TimeoutError


_alarm = _Alarm()


def main() -> None:
    """Answer requests until the input or the output is closed."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not mix with the answers
    if hasattr(signal, "SIGALRM"):
        _alarm.parent = os.getppid()
        signal.signal(signal.SIGALRM, _alarm)
    try:
        answers.write(READY)  # marks the end of text printed before, for example by a sitecustomize
        answers.flush()
        _serve(sys.stdin.buffer, answers)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # without a flush, because the other end is closed


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
