"""Bytes of stdin, stdout and text files: read in bounded memory, decompressed, and written unchanged."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from gristmill.analysis.texts import CHUNK_BYTES, chunks_of
from gristmill.cli.values import UsageError


def stdin_chunks(what: str) -> Iterator[bytes]:
    """Return the bytes of stdin in chunks. Raise `UsageError` if stdin is closed; `what` names the alternatives."""
    return chunks_of(_stdin(what))


@contextlib.contextmanager
def stdin_as_file(what: str) -> Iterator[Path]:
    """Copy stdin to a file in the temporary folder ($TMPDIR), for readers that need a real file, and yield its path."""
    source = _stdin(what)
    with _temporary_file() as (file, path):
        try:
            shutil.copyfileobj(source, file, CHUNK_BYTES)
            file.flush()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            message = "has no space left for a copy of stdin. Set $TMPDIR to a folder on another disk, or pass a file"
            raise OSError(error.errno, message, tempfile.gettempdir()) from None
        yield path


@contextlib.contextmanager
def _temporary_file() -> Iterator[tuple[IO[bytes], Path]]:
    """Yield an empty temporary file and a path to it, which only this process can use.

    On Linux the file has no name in its folder, so that a killed process leaves nothing.
    """
    with tempfile.TemporaryFile(prefix="gristmill-stdin-") as file:
        path = Path(f"/proc/self/fd/{file.fileno()}")
        if path.is_file() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            yield file, path
            return
    with tempfile.NamedTemporaryFile(prefix="gristmill-stdin-") as file:
        yield file, Path(file.name)


def stdin_is_given() -> bool:
    """Return whether stdin is open and not a terminal, where reading would wait for the user to type."""
    return sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()


def _stdin(what: str) -> BinaryIO:
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError(f"stdin is closed. Pass {what}.")
    return sys.stdin.buffer


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout unchanged. Does nothing if stdout was closed before the start."""
    if sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


def argument_bytes(text: str) -> bytes:
    """Return the bytes of a command-line argument, valid UTF-8 or not."""
    return os.fsencode(text)


def use_colors(color: str) -> bool:
    """Return whether to use colours: `color` is always, never, or auto (on a terminal, unless $NO_COLOR is set)."""
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal()


def is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()
