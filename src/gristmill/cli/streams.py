"""Bytes of stdin and stdout: read in bounded memory, and written exactly."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from gristmill.cli.values import UsageError

CHUNK_BYTES = 1 << 16


def stdin_chunks(what: str) -> Iterator[bytes]:
    """The bytes of stdin in chunks; `UsageError` where nobody gives any, with `what` to pass instead."""
    return file_chunks(_stdin(what))


def file_chunks(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file in chunks, as soon as they are there."""
    read = getattr(file, "read1", file.read)  # read() would wait until a whole chunk has come through the pipe
    while chunk := cast(bytes, read(CHUNK_BYTES)):
        yield chunk


@contextlib.contextmanager
def stdin_as_file(what: str) -> Iterator[Path]:
    """A file in the temporary folder ($TMPDIR) with the bytes of stdin, for readers that need a real one."""
    with tempfile.NamedTemporaryFile(prefix="gristmill-stdin-") as file:
        shutil.copyfileobj(_stdin(what), file, CHUNK_BYTES)
        file.flush()
        yield Path(file.name)


def stdin_is_given() -> bool:
    """Whether stdin is there and is not a terminal, at which nobody may be waiting."""
    return sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()


def _stdin(what: str) -> BinaryIO:
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError(f"stdin is closed. Pass {what}.")
    return sys.stdin.buffer


def write_bytes(data: bytes) -> None:
    """Write to stdout what no encoding may change; nothing where it was closed before we were started."""
    if sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


def argument_bytes(text: str) -> bytes:
    """The bytes that an argument had on the command line, valid UTF-8 or not."""
    return os.fsencode(text)


def use_colors(color: str) -> bool:
    """Whether to write colours: `color` is always, never, or auto (on a terminal, unless $NO_COLOR is set)."""
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal()


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()
